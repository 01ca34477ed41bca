"""Worlds and runs by the thousand leave nothing behind: descriptors, processes, files and memory stay flat."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from harness.world import forkserver, pool, processes
from harness.world.world import World

#: Worlds started, and runs on a kept world; every third run hangs.
SHORT, LONG = (8, 150), (1000, 20_000)


def gather_crosswise(hang: bool) -> float:
    """Two all-reduces on two groups; in opposite orders if it is to hang."""
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    value = torch.ones(64)
    for group in reversed(groups) if hang and dist.get_rank() else groups:
        dist.all_reduce(value, group=group)
    return float(value[0])


@dataclass
class Usage:
    """What this process and its fork server use of the machine."""

    descriptors: int
    server_descriptors: int
    processes: int
    shared_memory: int
    temporary: int
    mebibytes: float
    server_mebibytes: float

    @classmethod
    def now(cls) -> Usage:
        server = forkserver.ForkServer.shared()
        assert server.ready is not None
        pid = server.ready.pid
        return cls(
            len(os.listdir("/proc/self/fd")),
            len(os.listdir(f"/proc/{pid}/fd")),
            len(processes.descendants(os.getpid())),
            len([name for name in os.listdir("/dev/shm") if "harness" in name]),
            len(list(Path(tempfile.gettempdir()).glob("harness*"))),
            _resident(os.getpid()),
            _resident(pid),
        )

    def assert_flat(self, before: Usage, growth: float) -> None:
        """Counts are equal, and memory has grown by at most ``growth`` MiB."""
        assert (self.descriptors, self.server_descriptors) == (before.descriptors, before.server_descriptors)
        assert (self.processes, self.shared_memory) == (before.processes, before.shared_memory)
        assert self.mebibytes - before.mebibytes < growth
        assert self.server_mebibytes - before.server_mebibytes < growth


def _resident(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def _worlds(count: int) -> None:
    for turn in range(count):
        with World(2, ("lane", "gloo")[turn % 2]) as world:
            assert world.run(gather_crosswise, False).values == [4.0, 4.0]


def _runs(count: int) -> float:
    """Run on a kept world; returns how much its ranks have grown since a third of the runs, in MiB."""
    world = pool.get(2, "lane")
    early = 0.0
    for turn in range(count):
        hang = turn % 3 == 2
        run = world.run(gather_crosswise, hang)
        assert run.ok != hang
        assert not run.tainted
        if turn == count // 3:
            early = max(_resident(member.pid) for member in world.members)
    return max(_resident(member.pid) for member in world.members) - early


@pytest.mark.parametrize(
    ("worlds", "runs", "growth"), [(*SHORT, 4.0), pytest.param(*LONG, 32.0, marks=pytest.mark.nightly)]
)
@pytest.mark.timeout(7200)
def test_everything_stays_flat(worlds: int, runs: int, growth: float) -> None:
    _worlds(2)
    _runs(30)
    before = Usage.now()
    _worlds(worlds)
    grown = _runs(runs)
    Usage.now().assert_flat(before, growth)
    assert grown < growth
    pool.close_all()
