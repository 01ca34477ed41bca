"""What came of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.matrix.cell import Cell
from harness.matrix.plan import Expectation

#: ``unforeseen``: a skip that the matrix did not allow for.
Standing = Literal["expected", "unexpected", "skipped", "unforeseen"]

#: The verdict of a cell that did not run.
SKIPPED = "skipped"


@dataclass(frozen=True)
class CellResult:
    """One cell's verdict beside what was expected of it.

    ``seconds`` is the wall time of the cell; ``reason`` says why it was skipped, or what the verdict rests on;
    ``evidence`` names its file, relative to the run's folder; ``again`` is the call that repeats it, where that is
    not the replay of its token (a script's run, somebody's own test).
    """

    cell: Cell
    verdict: str
    order: str
    seconds: float
    expectation: Expectation
    reason: str = ""
    may_skip: str = ""
    evidence: str = ""
    again: str = ""

    @property
    def replay(self) -> str:
        """The call that repeats it."""
        return self.again or f"harness replay {self.cell.token}"

    @property
    def standing(self) -> Standing:
        if self.verdict == SKIPPED:
            return "skipped" if self.may_skip else "unforeseen"
        return "expected" if self.expectation.met_by(self.verdict, self.order) else "unexpected"

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell.to_json(),
            "token": self.cell.token,
            "verdict": self.verdict,
            "order": self.order,
            "seconds": round(self.seconds, 6),
            "standing": self.standing,
            "expectation": self.expectation.to_json(),
            "reason": self.reason,
            "may_skip": self.may_skip,
            "evidence": self.evidence,
            "again": self.again,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CellResult:
        return cls(
            Cell.from_json(value["cell"]),
            value["verdict"],
            value["order"],
            value["seconds"],
            Expectation.from_json(value["expectation"]),
            value["reason"],
            value["may_skip"],
            value["evidence"],
            value.get("again", ""),
        )


def count(results: Iterable[CellResult]) -> dict[Standing, int]:
    """How many results stand how; all four keys are present."""
    counts: dict[Standing, int] = {"expected": 0, "unexpected": 0, "skipped": 0, "unforeseen": 0}
    for result in results:
        counts[result.standing] += 1
    return counts
