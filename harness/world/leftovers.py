"""What a killed world could leave behind outside its processes: its temporary folder, and named shared memory."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable

SHARED_MEMORY = "/dev/shm"


def sweep(folder: str, tag: str, pids: Iterable[int]) -> None:
    """Remove the world's folder and what its processes left in shared memory.

    Ranks name theirs by ``tag`` (see ``hygiene.mark_shared_memory``); torch names its own by process id.
    """
    shutil.rmtree(folder, ignore_errors=True)
    marks = tuple(f"torch_{pid}_" for pid in pids)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(SHARED_MEMORY):
            if tag in name or name.startswith(marks):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHARED_MEMORY, name))
