"""How a rank's order of parameters (or anything else that belongs to groups) is perturbed.

``same``       as given, on every rank
``reversed``   backwards on odd ranks
``shuffled:S`` a permutation of its own per rank, drawn from the seed S
``split``      the ranks that `Topology.early` names see that group's items first; the others as given
``natural``    the iteration order of a real ``set`` of the items, in this process
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from harness.errors import UsageError
from harness.model.topology import Topology

Item = TypeVar("Item", bound=Hashable)

#: Arrivals that take no seed, and the one that does.
ARRIVALS = ("same", "reversed", "shuffled", "split", "natural")


class Arrival(Protocol):
    """Orders one rank's items. ``group_of`` gives the name of an item's group; only ``split`` asks."""

    def __call__(
        self, items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]
    ) -> list[Item]: ...


def arrival(text: str) -> Arrival:
    """The arrival written as ``name`` or ``shuffled:SEED``; UsageError names what is accepted."""
    name, colon, seed = text.partition(":")
    if name == "shuffled":
        if colon and not seed.isdigit():
            raise UsageError(f"arrival {text!r}: the seed is {seed!r}; accepted: a whole number, as in shuffled:7")
        return _shuffled(int(seed or 0))
    if colon or name not in _SEEDLESS:
        raise UsageError(f"arrival {text!r} is unknown; accepted: same, reversed, shuffled:SEED, split, natural")
    return _SEEDLESS[name]


def _same(items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]) -> list[Item]:
    return list(items)


def _reversed(items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]) -> list[Item]:
    return list(reversed(items)) if rank % 2 else list(items)


def _split(items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]) -> list[Item]:
    return sorted(items, key=lambda item: rank not in topology.early.get(group_of(item), ()))


def _natural(items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]) -> list[Item]:
    return list(set(items))


def _shuffled(seed: int) -> Arrival:
    def order(items: Sequence[Item], rank: int, topology: Topology, group_of: Callable[[Item], str]) -> list[Item]:
        permuted = list(items)
        random.Random(f"{seed}:{rank}").shuffle(permuted)  # a string seeds alike in every process
        return permuted

    return order


_SEEDLESS: dict[str, Arrival] = {"same": _same, "reversed": _reversed, "split": _split, "natural": _natural}
