"""torch's ``MultiProcessTestCase``: ranks spawned for each test."""

from __future__ import annotations

import os

import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase

from benchmarks._peers.body import note


class TestGather(MultiProcessTestCase):
    @property
    def world_size(self) -> int:
        return int(os.environ["PEER_RANKS"])

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()


def _test(self: TestGather) -> None:
    store = dist.FileStore(self.file_name, self.world_size)
    dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
    note()
    dist.destroy_process_group()


for _turn in range(int(os.environ["PEER_TESTS"])):
    setattr(TestGather, f"test_{_turn}", _test)
