"""Worlds kept and used again, by size, backend and launcher; a tainted one is replaced, not repaired."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence

from harness.world import forkserver
from harness.world.launch import Launcher, Local
from harness.world.world import World

#: More ranks than this do not stand idle: the world used longest ago goes first.
MOST_RANKS = 32

_worlds: dict[tuple[int, str, tuple[int, ...]], World] = {}
_owner = os.getpid()
_launcher: Launcher | None = None


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
        launcher = _launcher or Local(preload=tuple(preload), hash_seeds=tuple(hash_seeds))
        world = World(size, backend, launcher=launcher)
    _worlds[key] = world
    return world


def use(launcher: Launcher | None) -> None:
    """Take the ranks of new worlds from ``launcher`` (one that was handed ranks by torchrun, srun or mpirun)."""
    global _launcher
    _launcher = launcher


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
    """End all worlds and fork servers of this process, within two seconds."""
    _forget_parents()
    for world in _worlds.values():
        world.close()
    _worlds.clear()
    forkserver.close_all()


atexit.register(close_all)
