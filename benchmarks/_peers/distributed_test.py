"""DeepSpeed's ``DistributedTest``: ranks spawned for each test."""

from __future__ import annotations

import os
import sys

import deepspeed.comm.torch  # noqa: F401
import pytest
from unit.common import DistributedTest  # type: ignore[import-not-found]

from benchmarks._peers.body import note

# Else every test would first compile an extension that nothing here uses, for minutes.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]


@pytest.mark.parametrize("turn", range(int(os.environ["PEER_TESTS"])))
class TestGather(DistributedTest):
    world_size = int(os.environ["PEER_RANKS"])

    def test(self, turn: int) -> None:
        note()
