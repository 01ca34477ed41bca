"""Which Python threads of a rank may issue operations, and by what names the evidence knows them.

A part that nobody has issued is a proof of nothing while a thread lives that could still issue it. So every live
thread counts, except those known to be quiet.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable
from types import FrameType

#: Threads that never issue collectives, by the class that runs them: ``module.QualifiedName``.
QUIET_CLASSES = frozenset(
    {
        "tqdm._monitor.TMonitor",  # refreshes progress bars
        "threading._DummyThread",  # a thread of C++ that once called Python (autograd); it issues under its own name
        "torch._inductor.compile_worker.timer.Timer",  # ends idle compile workers
    }
)
#: Threads that only work when another thread hands them something, by the function they idle in. While all others
#: are blocked, nobody does.
PARKED_IN = frozenset(
    {
        ("concurrent/futures/thread.py", "_worker"),
        ("multiprocessing/pool.py", "worker"),
        ("concurrent/futures/process.py", "wait_result_broken_or_wakeup"),
        ("torch/_inductor/compile_worker/subproc_pool.py", "_read_thread"),
    }
)
_WAITING = frozenset({"wait", "get", "select", "poll", "_recv", "recv", "_recv_msg", "_loop"})


class ThreadNames:
    """Stable names for the threads of one epoch: ``main``, and for others the name or the function they run.

    ``Thread-7 (saver)`` becomes ``saver``, since the number depends on what ran before; equal names get ``#2``...
    Threads are told apart by the kernel's ids, as `native_id` gives them: Python's own idents are addresses, and the
    next thread gets that of one that ended a moment ago.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {native_id(threading.main_thread()): "main"}
        self._taken: dict[str, int] = {"main": 1}

    def of(self, number: int, name: str | None = None) -> str:
        """What the thread with that id is called, which Python knows by ``name`` (by default, it is looked up)."""
        found = self._by_id.get(number)
        if found is None:
            found = self._by_id[number] = self._unique(_plain(name or _name_of(number)))
        return found

    def ended(self, alive: Iterable[int]) -> list[str]:
        """Names of threads that were known and are not among the ids ``alive``; they are known no more."""
        gone = [number for number in self._by_id.keys() - set(alive) if self._by_id[number] != "main"]
        return [self._by_id.pop(number) for number in gone]

    def _unique(self, name: str) -> str:
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def native_id(thread: threading.Thread) -> int:
    """The kernel's id of a live thread. (After a fork Python still has the parent's for the main thread.)"""
    return os.getpid() if thread is threading.main_thread() else thread.native_id or 0


def may_issue(own: frozenset[int]) -> list[threading.Thread]:
    """Live Python threads that could issue an operation; ``own`` are idents of the harness's own threads.

    A thread that is just being started has no ident yet; the one that starts it is alive as long.
    """
    threads = [t for t in threading.enumerate() if t.ident is not None and t.ident not in own and not _quiet(t)]
    if not threads:
        return []
    frames = sys._current_frames()
    return [t for t in threads if not _parked(frames.get(t.ident or 0))]


def _quiet(thread: threading.Thread) -> bool:
    cls = type(thread)
    return f"{cls.__module__}.{cls.__qualname__}" in QUIET_CLASSES


def _parked(frame: FrameType | None) -> bool:
    """Whether the thread idles in a worker loop: at most the waiting primitive stands above that function."""
    for _ in range(4):
        if frame is None:
            return False
        code = frame.f_code
        if any(code.co_name == function and code.co_filename.endswith(file) for file, function in PARKED_IN):
            return True
        if code.co_name not in _WAITING:
            return False
        frame = frame.f_back
    return False


def _name_of(number: int) -> str:
    return next((t.name for t in threading.enumerate() if native_id(t) == number), "thread")


def _plain(name: str) -> str:
    numbered = re.fullmatch(r"Thread-\d+ \((.+)\)", name)
    if numbered:
        return numbered[1]
    return re.sub(r"^(Dummy|Thread)-\d+$", lambda m: m[1].lower(), name)
