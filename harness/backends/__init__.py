"""Backends by name, one file each: real engines, and progress models imposed on a transport.

``get("lane")`` gives the backend; ``names()`` lists all. A package of one's own adds a backend through the entry point
group ``harness.backends``: the entry point's name is the backend's, and it refers to a `harness.backends.spec.Backend`
or to a callable that makes one of the whole name (``mine:4`` is looked up as ``mine``).
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points

from harness.backends.spec import Backend, BackendSpec
from harness.errors import UsageError

__all__ = ["Backend", "BackendSpec", "get", "names"]

#: Where each backend of this package lives: ``module`` has a ``load(name)``.
_MODULES = {
    "gloo": "harness.backends.gloo",
    "independent": "harness.backends.independent",
    "lane": "harness.backends.lane",
    "lanes": "harness.backends.lanes",
    "host_blocking": "harness.backends.host_blocking",
    "first_use": "harness.backends.first_use",
    "gloo-detail": "harness.backends.gloo_detail",
    "oneccl": "harness.backends.oneccl",
    "mpi": "harness.backends.mpi",
    "nccl": "harness.backends.nccl",
    "xccl": "harness.backends.xccl",
    "ccl": "harness.backends.xccl",
}


def get(name: str) -> Backend:
    """The backend called ``name``, such as ``gloo``, ``lane``, ``lanes:4`` or ``lane+buffered``.

    Raises UsageError if there is none. Nothing is imported for the others, and torch only by what needs it.
    """
    head = name.partition("+")[0].partition(":")[0]
    module = _MODULES.get(head)
    if module is not None:
        backend: Backend = importlib.import_module(module).load(name)
        return backend
    plugin = _plugins().get(head)
    if plugin is None:
        raise UsageError(f"backend {name!r} is unknown; there are {', '.join(names())}")
    found = plugin.load()
    made: Backend = found if hasattr(found, "spec") else found(name)
    return made


def names() -> list[str]:
    """All names, in a stable order; those with a parameter as ``lanes:K``."""
    own = ["lanes:K" if name == "lanes" else name for name in _MODULES]
    return own + sorted(set(_plugins()) - set(_MODULES))


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="harness.backends")}
