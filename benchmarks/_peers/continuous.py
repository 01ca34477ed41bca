"""torch's ``MultiProcContinuousTest``: ranks spawned once a class, its tests handed to them."""

from __future__ import annotations

import os

from torch.testing._internal.common_distributed import MultiProcContinuousTest

from benchmarks._peers.body import note


class TestGather(MultiProcContinuousTest):
    world_size = int(os.environ["PEER_RANKS"])

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        return "cpu"


def _test(self: TestGather) -> None:
    note()


for _turn in range(int(os.environ["PEER_TESTS"])):
    setattr(TestGather, f"test_{_turn:03}", _test)
