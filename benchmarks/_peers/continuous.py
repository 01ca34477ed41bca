"""torch's ``MultiProcContinuousTest``: ranks spawned once a class, its tests handed to them."""

from __future__ import annotations

import os

from torch.testing._internal.common_distributed import MultiProcContinuousTest

from benchmarks._peers.body import gather, note


class TestGather(MultiProcContinuousTest):
    world_size = int(os.environ["PEER_RANKS"])

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        return "cpu"


def _first(self: TestGather) -> None:
    note()  # which takes longer than the gathering


def _later(self: TestGather) -> None:
    gather()


for _turn in range(int(os.environ["PEER_TESTS"])):
    setattr(TestGather, f"test_{_turn:03}", _later if _turn else _first)
