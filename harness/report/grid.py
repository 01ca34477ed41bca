"""Results laid out as every table shows them: a row per case, a column per backend and variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.matrix.cell import Cell, Scalar
from harness.matrix.result import CellResult

#: Scenario, world, topology, arrival and parameters.
Row = tuple[str, int, str, str, tuple[tuple[str, Scalar], ...]]
#: Backend and variant.
Column = tuple[str, str]


@dataclass(frozen=True)
class Grid:
    """``at[row, column]`` holds what ran; rows and columns keep the order in which they first appear."""

    rows: list[Row]
    columns: list[Column]
    at: dict[tuple[Row, Column], CellResult]

    @classmethod
    def of(cls, results: Sequence[CellResult]) -> Grid:
        at = {(r.cell.row, column_of(r.cell)): r for r in results}
        return cls(list(dict.fromkeys(row for row, _ in at)), _ordered({column for _, column in at}, at), at)

    def first(self, row: Row) -> CellResult:
        """Any result of the row: they share all but backend and variant."""
        return next(result for (other, _), result in self.at.items() if other == row)


def column_of(cell: Cell) -> Column:
    return cell.backend, cell.variant


def case(cell: Cell) -> str:
    """What a row is called beneath its scenario: ``4 ranks, dp_edp, split``."""
    ranks = "1 rank" if cell.world == 1 else f"{cell.world} ranks"
    return ", ".join([ranks, cell.topology, cell.arrival, *(f"{key}={value}" for key, value in cell.params)])


def _ordered(columns: set[Column], at: dict[tuple[Row, Column], CellResult]) -> list[Column]:
    """Columns of one backend side by side, each backend where it first appears."""
    seen = list(dict.fromkeys(column for _, column in at))
    backends = list(dict.fromkeys(backend for backend, _ in seen))
    return sorted(columns, key=lambda column: (backends.index(column[0]), seen.index(column)))
