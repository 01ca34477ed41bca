"""What a rank puts back between tasks, so that one task cannot be told from the next by what it left."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import random
import resource
import secrets
import signal
import sys
from multiprocessing import shared_memory
from typing import Any

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
#: Seed of every generator at the start of a task; the same on all ranks, as a job's script would set it.
SEED = 20_261
#: Modules whose globals remember process groups, which do not outlive a task.
_STATEFUL = ("deepspeed.utils.groups",)


class Hygiene:
    """Remembers the process as it is when made, and brings it back to that."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._folder = os.getcwd()
        self._limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}
        self._modules = {name: _plain_globals(name) for name in _STATEFUL if name in sys.modules}

    def before(self, path: list[str]) -> None:
        """A task begins, sent by a process whose ``sys.path`` is ``path``."""
        sys.path[:] = path
        _seed()

    def after(self) -> None:
        """A task is over."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        for limit, value in self._limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, value)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name, kept in self._modules.items():
            vars(sys.modules[name]).update(copy.deepcopy(kept))


def _plain_globals(module: str) -> dict[str, Any]:
    """The module's globals that hold plain data: None, numbers, text and containers of them."""
    kept = {}
    for name, value in vars(sys.modules[module]).items():
        if not name.startswith("__") and isinstance(value, (type(None), bool, int, float, str, list, dict, set, tuple)):
            with contextlib.suppress(TypeError):
                kept[name] = copy.deepcopy(value)
    return kept


def _seed() -> None:
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)


def scatter_addresses() -> list[bytes]:
    """Give this process object addresses of its own.

    Ranks forked from one server would otherwise put equal objects at equal addresses, and what iterates by address
    (a set of parameters) would come in the same order everywhere, as it does in no real job. Keep the result.
    """
    return [bytes(size) for size in range(0, 480, 16) for _ in range(secrets.randbelow(64))]


def mark_shared_memory(tag: str) -> None:
    """Have Python's shared memory and semaphores carry ``tag`` in their names, so that they can be found again."""
    shared_memory._SHM_NAME_PREFIX = f"/psm_{tag}_"  # type: ignore[attr-defined]
    multiprocessing.current_process()._config["semprefix"] = f"/mp-{tag}"  # type: ignore[attr-defined]
