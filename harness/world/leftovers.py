"""What a killed world could leave behind outside its processes: its folder, named shared memory, and build locks."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.world import processes

SHARED_MEMORY = "/dev/shm"
#: What MPICH calls the memory that a job's processes on one machine share: ``mpich_shm_JOB_NODE`` (5.0.2,
#: src/mpid/ch4/shm/posix). It removes the file in ``MPI_Finalize``, which a killed process does not come to.
JOB_MEMORY = "mpich_"
_NOTE = "held-lock-"


def sweep(folder: str, tag: str, pids: Iterable[int]) -> None:
    """Remove the world's folder and what its processes left in shared memory. All of them have ended.

    Ranks name theirs by ``tag`` (see ``hygiene.mark_shared_memory``); torch names its own by process id.
    """
    _free_locks(folder)
    shutil.rmtree(folder, ignore_errors=True)
    marks = tuple(f"torch_{pid}_" for pid in pids)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(SHARED_MEMORY):
            if tag in name or name.startswith(marks):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHARED_MEMORY, name))


def job_memory(pids: Iterable[int]) -> set[str]:
    """Files of an MPI job's shared memory that these processes have mapped, and that still have a name."""
    start = os.path.join(SHARED_MEMORY, JOB_MEMORY)
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", errors="replace") as file:
            paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in file if start in line}
            found |= {path for path in paths if path.startswith(start) and not path.endswith(" (deleted)")}
    return found


def free_job_memory(paths: set[str], killed: Callable[[processes.Stat], bool]) -> None:
    """Remove those of these files that no process has mapped but ``killed`` ones, which may take a while to go."""
    if paths:
        for path in paths - job_memory(process.pid for process in processes.everything() if not killed(process)):
            with contextlib.suppress(OSError):
                os.unlink(path)


def remember_locks(folder: str) -> None:
    """In a rank: note in ``folder`` which build locks of torch this process holds.

    torch builds an extension while it holds a plain file, and waits for ever for one whose holder was killed.
    """
    from torch.utils.file_baton import FileBaton

    acquire, release = FileBaton.try_acquire, FileBaton.release

    def try_acquire(self: FileBaton) -> bool | None:
        held: bool | None = acquire(self)
        if held:
            inode = os.stat(self.lock_file_path).st_ino
            self.note = Path(folder) / f"{_NOTE}{inode}"
            self.note.write_text(os.path.abspath(self.lock_file_path))
        return held

    def noted_release(self: FileBaton) -> None:
        release(self)
        self.note.unlink(missing_ok=True)

    FileBaton.try_acquire, FileBaton.release = try_acquire, noted_release


def _free_locks(folder: str) -> None:
    """Remove the locks that the world's ranks still held when they ended."""
    for note in Path(folder).glob(f"{_NOTE}*") if folder else ():
        with contextlib.suppress(OSError):
            path = note.read_text()
            if os.stat(path).st_ino == int(note.name.removeprefix(_NOTE)):
                os.unlink(path)
