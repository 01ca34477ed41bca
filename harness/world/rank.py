"""One rank: what a forked process does from its first line to its last.

The main thread runs tasks, one after the other. A listener thread reads the channel all the while, so that grants
and stops arrive while a task runs; when the channel ends, so does the process, with everything it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from harness import backends, record
from harness.world import processes
from harness.world.channel import RankEnd
from harness.world.hygiene import Hygiene, mark_shared_memory, scatter_addresses
from harness.world.leftovers import remember_locks
from harness.world.listener import listen
from harness.world.messages import Finished, Started, Task
from harness.world.outcome import Failure
from harness.world.spec import LOST_CHANNEL, STACK_SIGNAL, RankSpec
from harness.world.tasks import dumps


@dataclass(frozen=True)
class Here:
    """Where the calling code runs: the rank, its world, and its place on this machine."""

    rank: int
    size: int
    backend: str
    local_rank: int
    local_size: int


_here: Here | None = None


def here() -> Here | None:
    """This process as a rank, or None where it is none."""
    return _here


def main(spec: RankSpec, fds: list[int], parent: int) -> NoReturn:
    """Run the rank; returns never. ``fds``: channel, stdout, stderr, stacks, and on rank 0 the store's socket."""
    global _here
    os.setsid()
    processes.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    channel, stdout, stderr, stacks, *store = fds
    _redirect(stdout, stderr)
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    _set_environment(spec)
    mark_shared_memory(spec.tag)
    end = RankEnd(socket.socket(fileno=channel))
    try:
        rank = Rank(spec, end)
        rank.join(store[0] if store else None)
        _here = Here(spec.rank, spec.size, spec.backend, spec.local_rank, spec.local_size)
        end.send(Started(spec.rank, os.getpid(), ""))
        rank.work()
    except BaseException:  # noqa: BLE001 - the supervisor hears of it, whatever it is
        with contextlib.suppress(OSError):
            end.send(Started(spec.rank, os.getpid(), traceback.format_exc()))
    leave(1)


def _redirect(stdout: int, stderr: int) -> None:
    """Standard input is empty, output goes to the pipes, and nothing of it waits in a buffer."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target, inheritable=True)
        os.close(source)
    sys.stdin = open(0)  # noqa: SIM115 - these live as long as the process
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1 = _IOLBF: by line


def _set_environment(spec: RankSpec) -> None:
    """What launchers set, the world's own folder for temporary files, and what the caller asked for."""
    host, port = spec.store
    os.environ.update(
        RANK=str(spec.rank),
        WORLD_SIZE=str(spec.size),
        LOCAL_RANK=str(spec.local_rank),
        LOCAL_SIZE=str(spec.local_size),
        LOCAL_WORLD_SIZE=str(spec.local_size),
        MASTER_ADDR=host,
        MASTER_PORT=str(port),
        TMPDIR=spec.folder,
    )
    os.environ.update(spec.env)
    tempfile.tempdir = None


def leave(status: int) -> NoReturn:
    """End the process at once. What it started ends with it: the fork server sees to that."""
    os._exit(status)


def flush() -> None:
    """Hand over what Python and C still hold of the output."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)


class Rank:
    """A rank's main loop and its listener."""

    def __init__(self, spec: RankSpec, end: RankEnd) -> None:
        self._spec = spec
        self._end = end
        self._addresses = scatter_addresses()
        self._backend = backends.get(spec.backend)
        self._recorder = record.Recorder(end.send, spec.rank, spec.size)
        record.install(self._recorder)
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._hygiene: Hygiene | None = None
        self._store: Any = None

    def join(self, store: int | None) -> None:
        """Become part of the world: rendezvous and the default process group."""
        listen(self._end, self._recorder, self._tasks, on_exit=partial(leave, 0), on_end=partial(leave, LOST_CHANNEL))
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        remember_locks(self._spec.folder)
        host, port = self._spec.store
        extra = {} if store is None else {"master_listen_fd": store}
        self._store = dist.TCPStore(
            host, port, self._spec.size, is_master=store is not None, wait_for_workers=False, **extra
        )
        self._backend.init(self._spec.rank, self._spec.size, self._store, self._recorder)
        self._hygiene = Hygiene()

    def work(self) -> NoReturn:
        """Run tasks until the process is ended."""
        assert self._hygiene is not None
        while True:
            task = self._tasks.get()
            self._hygiene.before(task.options["path"])
            ok, payload = self._run(task)
            flush()
            self._end.send(Finished(task.epoch, ok, payload, time.monotonic_ns()))
            self._hygiene.after()

    def _run(self, task: Task) -> tuple[bool, bytes]:
        """The task's outcome: whether it returned, and a pickle of its value or of a :class:`Failure`."""
        try:
            self._recorder.begin(task.epoch, self._backend.spec)
            function, args = pickle.loads(task.payload)
            value = function(*args)
            self._recorder.end()
            return True, dumps(value)
        except BaseException as error:  # noqa: BLE001 - also sys.exit: the rank is the world's, not the task's
            with contextlib.suppress(OSError):
                self._recorder.end()
            return False, Failure.of(error).dump()
