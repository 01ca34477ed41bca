"""Worlds kept and used again, by size, backend and launcher; a tainted one is replaced, not repaired."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence

from harness.errors import UsageError
from harness.world import forkserver
from harness.world.external import External
from harness.world.launch import Launcher, Local
from harness.world.world import World

#: More ranks than this do not stand idle: the world used longest ago goes first.
MOST_RANKS = 32

_worlds: dict[tuple[int, str, tuple[int, ...]], World] = {}
_owner = os.getpid()
_launched: External | None = None


def get(size: int, backend: str, *, preload: Sequence[str] = (), hash_seeds: Sequence[int] = ()) -> World:
    """A world that stands ready, a new one if need be. ``preload`` names modules that new ranks should have imported;
    ``hash_seeds`` are those of :class:`~harness.world.launch.Local`. Raises what :class:`World` raises."""
    _forget_parents()
    key = size, backend, tuple(hash_seeds)
    world = _worlds.pop(key, None)
    if world is None or world.tainted is not None:
        if world is not None:
            world.close()
        _make_room(size)
        world = World(size, backend, launcher=_launcher_for(tuple(preload), tuple(hash_seeds)))
    _worlds[key] = world
    return world


def capacity() -> int | None:
    """The largest world there can be: as many ranks as torchrun, srun or mpirun started; None without them."""
    launched = _launched_ranks()
    return None if launched is None else launched.size


def _launcher_for(preload: tuple[str, ...], hash_seeds: tuple[int, ...]) -> Launcher:
    launched = _launched_ranks()
    if launched is None:
        return Local(preload=preload, hash_seeds=hash_seeds)
    if hash_seeds:
        raise UsageError("launched ranks have hash seeds of their own: set PYTHONHASHSEED where they are launched")
    launched.preload = preload
    return launched


def _launched_ranks() -> External | None:
    """The ranks that were launched from outside, if the environment says so."""
    global _launched
    if _launched is None:
        _launched = External.from_environment()
    return _launched


def _make_room(size: int) -> None:
    while _worlds and size + sum(world.size for world in _worlds.values()) > MOST_RANKS:
        _worlds.pop(next(iter(_worlds))).close()


def _forget_parents() -> None:
    """In a forked process: the worlds of its parent are not its own."""
    global _owner
    if _owner != os.getpid():
        for world in _worlds.values():
            world.close()
        _worlds.clear()
        _owner = os.getpid()


def close_all() -> None:
    """End all worlds and fork servers of this process, within two seconds; launched ranks are told to go."""
    global _launched
    _forget_parents()
    for world in _worlds.values():
        world.close()
    _worlds.clear()
    forkserver.close_all()
    if _launched is not None:
        _launched.close()
        _launched = None


atexit.register(close_all)
