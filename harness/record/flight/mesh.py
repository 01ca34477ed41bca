"""Made-up dumps of a training job on a mesh: every rank in the world, one row and one column, with a pair inverted.

For benchmarks and tests: everything completed, so that a tool that matches group by group sees nothing, and yet one
rank issued two operations of two groups the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.record.flight.write import dump, entry, write

_SOURCE = "/site-packages/torch/distributed/distributed_c10d.py"


@dataclass(frozen=True)
class Mesh:
    """``ranks`` = rows x columns ranks, ``entries`` each. ``inverted`` is (rank, place of the first of the pair)."""

    rows: int
    columns: int
    entries: int
    inverted: tuple[int, int] | None = None
    frames: int = 4

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.rows * self.columns

    def groups(self, rank: int) -> dict[str, tuple[str, list[int]]]:
        """The rank's three groups, named as torch numbers them: the world, its row, its column."""
        row, column = divmod(rank, self.columns)
        first_column = 1 + self.rows
        return {
            "0": ("default_pg", list(range(self.ranks))),
            str(1 + row): ("row", [row * self.columns + c for c in range(self.columns)]),
            str(first_column + column): ("column", [r * self.columns + column for r in range(self.rows)]),
        }

    def content(self, rank: int) -> dict[str, Any]:
        """The rank's dump."""
        groups = self.groups(rank)
        names = list(groups)
        steps = [step % 3 for step in range(self.entries)]
        places = list(range(self.entries))
        if self.inverted and self.inverted[0] == rank:
            at = self.inverted[1]
            places[at], places[at + 1] = places[at + 1], places[at]
        counts = dict.fromkeys(names, 0)
        entries = []
        for record, place in enumerate(places):
            which = steps[place]
            name = names[which]
            counts[name] += 1
            line = 100 + place % 3
            frames = [(_SOURCE, 2806 + which, ("all_reduce", "all_gather", "reduce_scatter")[which])]
            frames += [(f"/job/train/layer{depth}.py", line + depth, f"forward{depth}") for depth in range(self.frames)]
            size = (1024, 256, 256)[which]
            members = len(groups[name][1])
            entries.append(
                entry(
                    record,
                    (name, groups[name][0]),
                    ("nccl:all_reduce", "nccl:_all_gather_base", "nccl:_reduce_scatter_base")[which],
                    collective_seq=counts[name],
                    op_id=counts[name],
                    pg_id=which,
                    inputs=[[size * (members if which == 2 else 1)]],
                    outputs=[[size * (members if which == 1 else 1)]],
                    created_ns=1_796_024_666_000_000_000 + record * 1000 + rank,
                    frames=frames,
                )
            )
        return dump(groups, entries)

    def write(self, folder: Path, prefix: str = "nccl_trace_rank_") -> None:
        """One file a rank."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self.ranks):
            write(folder / f"{prefix}{rank}", self.content(rank))
