"""An MPI job whose processes are a world's ranks.

MPI wants its processes started by ``mpiexec``; a world wants ranks that are forked, warm, and its own to end. Both are
had: rank 0 starts ``mpiexec`` with a small process per rank (`harness.backends.mpi_slot`), and each of these hands the
rank its place in the job: its environment and its connection to the job's manager (``PMI_FD``). The rank then starts
MPI as that process. ``mpiexec`` is rank 0's child, and ends with it. The memory that the job's processes share loses
its name as soon as all have it, so that nothing is left of it however they end.

A rank that ``mpiexec`` or ``srun`` itself has started is part of a job already.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import BackendError
from harness.world.leftovers import job_memory

if TYPE_CHECKING:
    import torch.distributed as dist

#: Seconds until every place of a job must have been handed over.
START_LIMIT = 50.0
#: What a launcher sets for the processes of a job.
_MARKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def library() -> Path | None:
    """``libmpi.so.12`` of this environment's wheel ``mpich``."""
    found = Path(sys.prefix, "lib", "libmpi.so.12")
    return found if found.exists() else None


def mpiexec() -> str | None:
    """The launcher beside the library, or the machine's own."""
    beside = Path(sys.prefix, "bin", "mpiexec")
    return str(beside) if library() is not None and beside.exists() else shutil.which("mpiexec")


def lacking() -> str | None:
    """What of MPI is missing here, or None."""
    install = "`pip install 'collective-harness[mpi]'`"
    if util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed: {install}"
    if library() is None and ctypes.util.find_library("mpi") is None:
        return f"no MPI library (libmpi) is here: {install}"
    if mpiexec() is None:
        return f"no mpiexec is here: {install}"
    return None


def start_mpi(rank: int, world: int, store: dist.Store) -> Any:
    """Start MPI in this rank as part of the world's job; returns ``mpi4py.MPI``. Every rank calls this once."""
    if not any(mark in os.environ for mark in _MARKS):
        _take_place(rank, world, store)
    found = library()
    if found is not None:
        os.environ.setdefault("MPI4PY_LIBMPI", str(found))
    import mpi4py

    mpi4py.rc.finalize = False  # ranks end at once, by `os._exit`
    from mpi4py import MPI

    if (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) != (rank, world):
        raise BackendError(
            f"rank {rank} of {world} is rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size} in its MPI job: "
            "start as many processes as the world has ranks, in their order"
        )
    MPI.COMM_WORLD.Barrier()  # every process has opened what it shares with the others
    for path in job_memory((os.getpid(),)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return MPI


def _take_place(rank: int, world: int, store: dist.Store) -> None:
    """Have the job started (by rank 0), and become the process that it started for this rank."""
    global _slot
    if rank == 0:
        store.set("harness/mpi", tempfile.mkdtemp(prefix="mpi-"))
    folder = store.get("harness/mpi").decode()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(folder, str(rank)))
        server.listen(1)
        store.set(f"harness/mpi/{rank}", "")
        if rank == 0:
            store.wait([f"harness/mpi/{other}" for other in range(world)])
            _start(world, folder, server)
        server.settimeout(START_LIMIT)
        _slot, _ = server.accept()
    data, fds, _, _ = socket.recv_fds(_slot, 1 << 16, 1)
    os.environ.update(json.loads(data))
    os.environ["PMI_FD"] = str(fds[0])


#: This rank's place is held as long as this is open.
_slot: socket.socket | None = None


def _start(world: int, folder: str, server: socket.socket) -> None:
    """Start mpiexec; returns once this rank's place is there. Raises BackendError if mpiexec ends before."""
    launcher = mpiexec()
    assert launcher is not None
    slot = Path(__file__).with_name("mpi_slot.py")
    command = [launcher, "-n", str(world), sys.executable, "-S", str(slot), folder]
    said = open(os.path.join(folder, "mpiexec"), "w+b")  # noqa: SIM115 - as long as the job
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    ended = os.pidfd_open(job.pid)
    ready, _, _ = select.select([server.fileno(), ended], [], [], START_LIMIT)
    os.close(ended)
    if server.fileno() not in ready:
        said.seek(0)
        words = said.read().decode(errors="replace").strip()
        how = f"ended with exit code {job.wait()}" if ready else f"had not started them after {START_LIMIT:.0f} s"
        raise BackendError(f"{' '.join(command)} should start the ranks' places, and {how}: {words}")
