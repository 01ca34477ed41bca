"""The MPI job behind a world, where MPI is installed: how it starts, how that fails, and what is left of it."""

from __future__ import annotations

import time

import psutil
import pytest
import torch.distributed as dist

from harness import backends
from harness.backends import mpi_job
from harness.errors import WorldError
from harness.world import pool
from harness.world.launch import Local
from harness.world.world import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(backends.get("mpi").available() is not None, reason=str(backends.get("mpi").available())),
]


def _job() -> tuple[int, int, list[int]]:
    """This rank's place in the job, and mpiexec with its processes (rank 0's)."""
    from mpi4py import MPI

    below = [child.pid for child in psutil.Process().children(recursive=True)]
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, below


def test_ranks_are_processes_of_one_job_that_ends_with_them() -> None:
    with World(3, backend="mpi") as world:
        found = world.run(_job).values
    assert [place[:2] for place in found] == [(0, 3), (1, 3), (2, 3)]
    started = found[0][2]
    assert len(started) >= 4, "mpiexec, and a process for each rank"
    deadline = time.monotonic() + 5
    while (left := [pid for pid in started if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_a_launcher_that_fails_is_quoted() -> None:
    """As when mpiexec can't run here: its own words are in the error."""
    with pytest.raises(WorldError, match=r"should start the ranks' places, and ended with exit code"):
        World(2, backend="mpi", launcher=Local(env={"HYDRA_LAUNCHER": "no-such-launcher"}))


def test_the_library_is_in_the_evidence() -> None:
    lines: list[dict[str, object]] = []
    assert pool.get(2, "mpi").run(dist.get_rank, sink=lines.append).values == [0, 1]
    noted = [str(line["value"]) for line in lines if line.get("name") == "mpi"]
    assert len(noted) == 2
    assert all("MPICH" in text for text in noted) or mpi_job.library() is None
