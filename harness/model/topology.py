"""Process groups over a world: which ranks, in which order created.

A topology also says which ranks see which group *first* under the arrival ``split`` (`harness.model.arrival`),
because whether ranks can be set against each other depends on how its groups overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.errors import UsageError
from harness.model.operation import Group

#: The name of the group of all ranks; it exists in every world and is never created again.
WORLD = "world"


@dataclass(frozen=True)
class Topology:
    """Named process groups over ranks ``0..world-1``.

    ``groups`` maps a name to world ranks in ascending order; its order is the order of creation. ``early`` maps a
    group's name to those of its ranks that see it before their other groups under the arrival ``split``.
    """

    name: str
    world: int
    groups: Mapping[str, tuple[int, ...]]
    early: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group, ranks in self.groups.items():
            if list(ranks) != sorted(set(ranks)) or not ranks or ranks[0] < 0 or ranks[-1] >= self.world:
                raise UsageError(
                    f"topology {self.name}: group {group} has ranks {list(ranks)}; "
                    f"accepted: ascending, distinct ranks of 0..{self.world - 1}"
                )
            if group == WORLD and len(ranks) != self.world:
                raise UsageError(f"topology {self.name}: the group {WORLD!r} must hold all {self.world} ranks")
        for group, ranks in self.early.items():
            if not set(ranks) <= set(self.groups.get(group, ())):
                raise UsageError(f"topology {self.name}: early ranks {list(ranks)} are not all of group {group}")

    def group(self, name: str) -> Group:
        """The group as operations name it."""
        return Group(name, self.groups[name])

    def of(self, rank: int) -> list[str]:
        """Names of the groups that ``rank`` is in, in creation order."""
        return [name for name, ranks in self.groups.items() if rank in ranks]


def _single(world: int) -> Topology:
    """One group: nothing to disagree about."""
    return Topology("single", world, {WORLD: tuple(range(world))})


def _mirror(world: int) -> Topology:
    """The world and a second group over the same ranks."""
    ranks = tuple(range(world))
    return Topology("mirror", world, {WORLD: ranks, "mirror": ranks}, {"mirror": _first_half(ranks)})


def _expert_data_parallel(name: str, world: int, expert_parallel: int) -> Topology:
    """Data parallel over the world; expert data parallel over every ``expert_parallel``-th rank."""
    small = {f"edp{first}": tuple(range(first, world, expert_parallel)) for first in range(expert_parallel)}
    early = {group: _first_half(ranks) for group, ranks in small.items()}
    return Topology(name, world, {WORLD: tuple(range(world)), **small}, early)


def _dp_edp(world: int) -> Topology:
    """Data parallel and expert data parallel for expert parallelism 2: EDP {0,2,..} and {1,3,..}."""
    return _expert_data_parallel("dp_edp", world, 2)


def _dp_edp4(world: int) -> Topology:
    """Data parallel and expert data parallel for expert parallelism 4: EDP {0,4,..} to {3,7,..}."""
    return _expert_data_parallel("dp_edp4", world, 4)


def _halves(world: int) -> Topology:
    """The world and its two halves."""
    low, high = tuple(range(world // 2)), tuple(range(world // 2, world))
    early = {"low": _first_half(low), "high": _first_half(high)}
    return Topology("halves", world, {WORLD: tuple(range(world)), "low": low, "high": high}, early)


def _mesh(world: int) -> Topology:
    """Rows and columns of the squarest grid; any two ranks share at most one group.

    Every second column is seen first by its upper half, the others by their lower half: then two neighbouring
    columns and two rows wait in a ring of four.
    """
    rows = _rows(world)
    columns = world // rows
    groups = {f"row{r}": tuple(range(r * columns, (r + 1) * columns)) for r in range(rows)}
    early = {}
    for c in range(columns):
        ranks = tuple(range(c, world, columns))
        groups[f"col{c}"] = ranks
        upper = _first_half(ranks)
        early[f"col{c}"] = upper if c % 2 else tuple(r for r in ranks if r not in upper)
    return Topology("mesh", world, groups, early)


def _chain(world: int) -> Topology:
    """Overlapping neighbours {0,1},{1,2},..: open at its ends, so no order of one gather a group can hang it."""
    groups = {f"pair{r}": (r, r + 1) for r in range(world - 1)}
    return Topology("chain", world, groups, {name: ranks[:1] for name, ranks in groups.items()})


def _ring3(world: int) -> Topology:
    """Three groups in a ring, no two ranks sharing two of them: pairwise checks can't see its inversions.

    Ranks 0, 1 and 2 are the joints (groups {0,1}, {1,2}, {0,2}); any further rank is in one group only.
    """
    members = {"ab": {0, 1}, "bc": {1, 2}, "ca": {0, 2}}
    for rank in range(3, world):
        list(members.values())[rank % 3].add(rank)
    groups = {name: tuple(sorted(ranks)) for name, ranks in members.items()}
    return Topology("ring3", world, groups, {"ab": (0,), "bc": (1,), "ca": (2,)})


def _first_half(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return ranks[: max(1, len(ranks) // 2)]


def _rows(world: int) -> int:
    """Rows of the squarest grid of ``world`` ranks: the largest divisor up to the square root."""
    return max(d for d in range(1, int(world**0.5) + 1) if world % d == 0)


@dataclass(frozen=True)
class _Kind:
    build: Callable[[int], Topology]
    fits: Callable[[int], bool]
    worlds: str


_KINDS = {
    "single": _Kind(_single, lambda n: n >= 1, "1 or more"),
    "mirror": _Kind(_mirror, lambda n: n >= 2, "2 or more"),
    "dp_edp": _Kind(_dp_edp, lambda n: n >= 4 and n % 2 == 0, "4, 6, 8, ..."),
    "dp_edp4": _Kind(_dp_edp4, lambda n: n >= 8 and n % 4 == 0, "8, 12, 16, ..."),
    "halves": _Kind(_halves, lambda n: n >= 4 and n % 2 == 0, "4, 6, 8, ..."),
    "mesh": _Kind(_mesh, lambda n: n >= 4 and _rows(n) > 1, "4, 6, 8, 9, ... (no primes)"),
    "chain": _Kind(_chain, lambda n: n >= 3, "3 or more"),
    "ring3": _Kind(_ring3, lambda n: n >= 3, "3 or more"),
}
#: Every topology's name.
TOPOLOGIES = tuple(_KINDS)


def supports(name: str, world: int) -> bool:
    """Whether the topology exists over so many ranks. UsageError for a name that is none."""
    return _kind(name).fits(world)


def topology(name: str, world: int) -> Topology:
    """The topology of that name over ``world`` ranks; UsageError names what is accepted."""
    kind = _kind(name)
    if not kind.fits(world):
        raise UsageError(f"topology {name}: no such thing over {world} ranks; accepted: {kind.worlds}")
    return kind.build(world)


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise UsageError(f"topology {name!r} is unknown; accepted: {', '.join(TOPOLOGIES)}")
    return _KINDS[name]
