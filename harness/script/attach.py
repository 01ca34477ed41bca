"""In a script's process: become a rank of the world that ``harness exec`` watches.

A process whose environment names its rank (``RANK`` and ``WORLD_SIZE``, as torchrun and DeepSpeed's launcher set them)
joins at its start, so that its death before any collective is seen; another joins in ``init_process_group``, which
knows its rank. Whatever backend the script names there, it gets the harness's. Imports torch only after the script did.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib.abc
import importlib.util
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from harness import backends, record
from harness.errors import UsageError
from harness.script import devices
from harness.world.channel import RankEnd
from harness.world.listener import listen
from harness.world.messages import Finished, Started, Task
from harness.world.outcome import Failure
from harness.world.spec import LOST_CHANNEL, STACK_SIGNAL

#: The environment by which a process finds its supervisor. Processes that a rank starts are no ranks.
SOCKET, ROOT, BACKEND, FOLDER = (f"HARNESS_SCRIPT_{name}" for name in ("SOCKET", "ROOT", "BACKEND", "FOLDER"))
#: What a rank says first, beside the descriptor its stacks can be read from: rank, world size, process id.
HELLO = struct.Struct("!iii")

_rank: ScriptRank | None = None


def prepare() -> None:
    """At the interpreter's start: join if this process is known to be a rank, and lead the script's calls here."""
    if backends.get(os.environ[BACKEND]).spec.transport not in devices.ON_HOST:
        for module in ("torch", "torch.distributed.device_mesh", "torch.nn.parallel.distributed"):
            del _PATCHES[module]  # the devices that a script asks for are what it is to run on
    sys.meta_path.insert(0, _Patching())
    if os.environ.get("RANK", "").isdigit() and os.environ.get("WORLD_SIZE", "").isdigit():
        _join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def _join(rank: int, size: int) -> ScriptRank:
    global _rank
    _rank = ScriptRank(rank, size)
    return _rank


class ScriptRank:
    """This process as a rank. Making it waits until all ranks are there and the run begins."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._pid = os.getpid()
        self._backend = backends.get(os.environ[BACKEND])
        self._folder = os.environ[FOLDER]
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(os.environ.pop(SOCKET))
        stacks, write = os.pipe()
        faulthandler.enable()
        faulthandler.register(STACK_SIGNAL, file=write, all_threads=True)
        socket.send_fds(sock, [HELLO.pack(rank, size, self._pid)], [stacks])
        os.close(stacks)
        self._end = RankEnd(sock)
        self.recorder = record.Recorder(self._end.send, rank, size)
        record.install(self.recorder)
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._over = threading.Event()
        self._failure: Failure | None = None
        self._initialized = False
        listen(self._end, self.recorder, self._tasks, on_exit=self._over.set, on_end=self._lost)
        self._end.send(Started(rank, self._pid, ""))
        self._epoch = self._tasks.get().epoch
        self.recorder.begin(self._epoch, self._backend.spec)
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception
        atexit.register(self._finish)  # the first to be registered is the last to run

    def _lost(self) -> None:
        """Nobody watches any more."""
        if not self._over.is_set():
            os._exit(LOST_CHANNEL)

    # --- the end --------------------------------------------------------------------------------------------

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._failure = Failure.of(error)
        self._hook(kind, error, trace)

    def _finish(self) -> None:
        """The script is over: say so, and stay until all are (a peer must not see its connections close before)."""
        if os.getpid() != self._pid:
            return
        payload = self._failure.dump() if self._failure else Failure("", "").dump()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            self.recorder.end()
            self._end.send(Finished(self._epoch, self._failure is None, payload, time.monotonic_ns()))
        except OSError:
            return
        self._over.wait()

    # --- torch.distributed ----------------------------------------------------------------------------------

    def initialize(self, rank: int, size: int) -> None:
        """The script initializes its default process group."""
        if (rank, size) != (self.rank, self.size):
            raise UsageError(
                f"init_process_group(rank={rank}, world_size={size}): this process is rank {self.rank} of {self.size}"
            )
        import torch.distributed as dist

        if dist.is_initialized():
            raise ValueError("trying to initialize the default process group twice!")  # torch's own words
        with self.recorder.unrecorded():
            if not self._initialized:
                self._initialized = True
                store = dist.FileStore(os.path.join(self._folder, "store"), size)
                self._backend.init(rank, size, store, self.recorder)
            else:
                self.recorder.arrange()


# --- leading calls here -------------------------------------------------------------------------------------


def _patch_c10d(module: ModuleType) -> None:
    original = module.init_process_group
    inside = threading.local()

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        """torch's own, whose backend is the one that ``harness exec`` was given."""
        if getattr(inside, "active", False):
            original(*args, **kwargs)
            return
        inside.active = True
        try:
            given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
            devices.begin(given.get("backend"))
            rank, size = _place(given)
            (_rank or _join(rank, size)).initialize(rank, size)
        finally:
            inside.active = False

    init_process_group.__wrapped__ = original  # type: ignore[attr-defined]
    module.init_process_group = init_process_group  # type: ignore[attr-defined]


#: The parameters of torch's ``init_process_group`` in their order.
_PARAMETERS = ("backend", "init_method", "timeout", "world_size", "rank", "store")


def _place(given: Mapping[str, Any]) -> tuple[int, int]:
    """Rank and world size, as torch takes them: from the arguments, the init method's query, or the environment."""
    rank, size = given.get("rank", -1), given.get("world_size", -1)
    query = str(given.get("init_method") or "").partition("?")[2]
    found = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
    rank = rank if rank is not None and rank >= 0 else int(found.get("rank", os.environ.get("RANK", -1)))
    size = size if size is not None and size > 0 else int(found.get("world_size", os.environ.get("WORLD_SIZE", -1)))
    if rank < 0 or size < 1:
        raise ValueError("init_process_group: neither its arguments nor RANK and WORLD_SIZE say which rank this is")
    return rank, size


def _patch_deepspeed(module: ModuleType) -> None:
    # Only inference uses this extension, and the first init_distributed would compile it for minutes.
    module.build_shm_op = lambda: None  # type: ignore[attr-defined]


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch": devices.stand_in,
    "torch.distributed.distributed_c10d": _patch_c10d,
    "torch.distributed.device_mesh": devices.patch_mesh,
    "torch.nn.parallel.distributed": devices.patch_data_parallel,
    "deepspeed.comm.torch": _patch_deepspeed,
}


class _Patching(importlib.abc.MetaPathFinder):
    """Changes a module right after it was imported, before anybody imports from it."""

    def __init__(self) -> None:
        self._finding = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _PATCHES or self._finding:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _PATCHES[fullname])
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, patch: Callable[[ModuleType], None]) -> None:
        self._inner, self._patch = inner, patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
