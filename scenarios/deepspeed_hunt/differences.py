"""Where ranks disagree about the order of their collectives, hung or not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, zip_longest

from harness.model.operation import Operation
from harness.model.order import Histories


@dataclass(frozen=True)
class Difference:
    """The first place at which two ranks differ, among what both take part in; None: that rank has ended."""

    ranks: tuple[int, int]
    place: int
    operations: tuple[Operation | None, Operation | None]

    def __str__(self) -> str:
        (one, other), (mine, its) = self.ranks, self.operations
        shown = " | ".join("nothing more" if op is None else f"{op} n={op.n} {op.dtype}" for op in (mine, its))
        return f"ranks {one} and {other}, common collective {self.place + 1}: {shown}"


def differences(histories: Histories) -> list[Difference]:
    """One for each pair of ranks that disagree.

    Two ranks are compared by the collectives of the groups that both are in: kind, group, root, elements, dtype and
    label. Point to point is left out (its two sides differ by nature), and so are ranks whose threads share the work:
    their order is not a fixed one.
    """
    single = {rank: next(iter(threads.values())) for rank, threads in histories.items() if len(threads) == 1}
    found = []
    for one, other in combinations(sorted(single), 2):
        pairs = zip_longest(*(_common(single[rank], {one, other}) for rank in (one, other)))
        for place, (mine, its) in enumerate(pairs):
            if mine != its:
                found.append(Difference((one, other), place, (mine, its)))
                break
    return found


def _common(calls: object, ranks: set[int]) -> Iterator[Operation]:
    """The collectives of groups that hold all of ``ranks``; creations are of the whole world."""
    for call in calls:  # type: ignore[attr-defined]
        for op in call:
            if op.peer is None and (op.kind == "new_group" or ranks <= set(op.group.ranks)):
                yield op
