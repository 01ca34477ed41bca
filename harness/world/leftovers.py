"""What a killed world could leave behind outside its processes: its folder, named shared memory, and build locks."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

SHARED_MEMORY = "/dev/shm"
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
