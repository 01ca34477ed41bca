"""Which rank of how many this process is, as torchrun, srun or mpirun say it through the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from harness.errors import UsageError

#: Launcher, and its variables for rank, size, local rank, local size. The first whose rank is set counts.
LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    (
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


class Place(NamedTuple):
    """Where a launched process stands."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    launcher: str

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Place:
        """Raises UsageError where no launcher's variables are set, or make no sense."""
        for launcher, *names in LAUNCHERS:
            if names[0] in environment:
                return cls._read(launcher, names, environment)
        accepted = ", ".join(f"{names[0]} ({launcher})" for launcher, *names in LAUNCHERS)
        raise UsageError(f"not started by a launcher: none of {accepted} is set")

    @classmethod
    def _read(cls, launcher: str, names: list[str], environment: Mapping[str, str]) -> Place:
        rank, size = (_number(environment, name) for name in names[:2])
        local_rank = _number(environment, names[2], rank)
        local_size = _number(environment, names[3], 1 if names[2] not in environment else local_rank + 1)
        if not (0 <= rank < size and 0 <= local_rank < max(local_size, local_rank + 1)):
            raise UsageError(f"{names[0]}={rank} and {names[1]}={size}: a rank lies between 0 and the size")
        return cls(rank, size, local_rank, max(local_size, local_rank + 1), launcher)


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    # Slurm writes 4(x2) for "4 on each of 2 nodes"
    head = (text or "").partition("(")[0].partition(",")[0]
    if not head.isdigit():
        raise UsageError(f"{name}={text!r}: a number is expected")
    return int(head)
