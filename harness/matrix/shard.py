"""Splitting a suite over machines that don't talk to each other.

Every machine computes the same split from what the repository holds, so no cell is lost and none runs twice. Times
recorded on one machine alone would break that: they take part only as a file that all shards read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError, UsageError
from harness.matrix.plan import Planned


@dataclass(frozen=True)
class Shard:
    """The ``index``-th of ``count`` parts, from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        index, slash, count = text.partition("/")
        if not (slash and index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
            raise UsageError(f"--shard {text}: accepted: I/N with 1 <= I <= N, as in 3/8")
        return cls(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def shard_of(planned: Sequence[Planned], shard: Shard, seconds: Mapping[str, float]) -> list[Planned]:
    """This shard's cells, in the suite's order.

    Longest first onto the least loaded shard. ``seconds`` maps cell ids to recorded times; a cell without one counts
    as the mean of the known ones (or 1).
    """
    known = [seconds[p.cell.id] for p in planned if p.cell.id in seconds]
    guess = sum(known) / len(known) if known else 1.0
    cost = {p.cell.id: seconds.get(p.cell.id, guess) for p in planned}
    load = [0.0] * shard.count
    mine: set[str] = set()
    for cell_id in sorted(cost, key=lambda name: (-cost[name], name)):
        least = load.index(min(load))
        load[least] += cost[cell_id]
        if least == shard.index - 1:
            mine.add(cell_id)
    return [p for p in planned if p.cell.id in mine]


def read_times(path: Path) -> dict[str, float]:
    """Recorded seconds per cell id; empty where the file doesn't exist."""
    if not path.exists():
        return {}
    try:
        times = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in times.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"is not a JSON object of seconds by cell id: {error}", file=str(path)) from error
