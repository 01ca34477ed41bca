"""The text of a failing cell: verdict first, then why, then how to see it again."""

from __future__ import annotations

from pathlib import Path

from harness.matrix.result import CellResult
from harness.report.grid import case
from harness.report.lanes import lanes_of


def failure(result: CellResult, folder: Path) -> str:
    """What a person needs at the moment a cell fails."""
    cell = result.cell
    lines = [
        f"{result.verdict}, order {result.order}; expected: {result.expectation}"
        + (f" (matrix line {result.expectation.line})" if result.expectation.line else ""),
        f"{cell.scenario} on {cell.backend}, {cell.variant}: {case(cell)}",
    ]
    if result.expectation.because:
        lines.append(f"expected because {result.expectation.because}")
    if result.reason:
        lines += ["", result.reason]
    drawn = lanes_of(folder / result.evidence)
    if drawn:
        lines += ["", drawn]
    lines += ["", f"evidence: {folder / result.evidence}", f"replay:   {result.replay}"]
    return "\n".join(lines)
