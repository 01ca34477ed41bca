"""The table a person sees at the end of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.matrix.result import SKIPPED, CellResult, count
from harness.report.grid import Grid, case

WORDS = {
    "expected": "as expected",
    "unexpected": "unexpected",
    "skipped": "skipped as foreseen",
    "unforeseen": "skipped, unforeseen",
}
_STYLES = {"expected": "green", "unexpected": "bold red", "skipped": "yellow", "unforeseen": "bold red"}
_MARKS = {"expected": "✓", "unexpected": "✗", "skipped": "-", "unforeseen": "✗"}
_ASCII_MARKS = {"expected": "ok", "unexpected": "NO", "skipped": "-", "unforeseen": "NO"}


def table(results: Sequence[CellResult], *, color: bool, ascii_only: bool = False, width: int = 0) -> str:
    """The whole table as text. It takes the width it needs where ``width`` is less: half a table says nothing."""
    grid = Grid.of(results)
    view = Table(box=None if ascii_only else SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    view.add_column("scenario\n  case", no_wrap=True)
    for backend, variant in grid.columns:
        view.add_column(f"{backend}\n{variant}", no_wrap=True)
    marks = _ASCII_MARKS if ascii_only else _MARKS
    scenario = None
    for row in grid.rows:
        cell = grid.first(row).cell
        if cell.scenario != scenario:
            view.add_row(Text(cell.scenario, style="bold"))
            scenario = cell.scenario
        view.add_row(f"  {case(cell)}", *(_shown(grid.at.get((row, column)), marks) for column in grid.columns))
    return _rendered(view, color, width)


def summary(results: Sequence[CellResult]) -> str:
    """One line of counts, such as ``78 cells: 78 as expected``."""
    counts = count(results)
    parts = [f"{number} {WORDS[standing]}" for standing, number in counts.items() if number]
    return f"{len(results)} {'cell' if len(results) == 1 else 'cells'}: {', '.join(parts) or 'none ran'}"


def reasons(results: Sequence[CellResult]) -> list[str]:
    """Why cells were skipped: a line per reason, with what it stands for."""
    why: dict[str, list[CellResult]] = {}
    for result in results:
        if result.verdict == SKIPPED:
            why.setdefault(result.reason, []).append(result)
    lines = []
    for reason, skipped in why.items():
        backends = ", ".join(dict.fromkeys(r.cell.backend for r in skipped))
        lines.append(f"skipped {len(skipped)} on {backends}: {reason}")
    return lines


def _shown(result: CellResult | None, marks: dict[str, str]) -> Text:
    if result is None:
        return Text("")
    text = Text(f"{result.verdict} {marks[result.standing]}", style=_STYLES[result.standing])
    if result.verdict == SKIPPED:
        return text
    text.append(f"\n{result.order} {result.seconds:.2f}s", style="dim")
    if result.standing == "unexpected":
        for word, outcome in zip(["want", *["or"] * 9], result.expectation.outcomes, strict=False):
            verdict, _, order = outcome.partition(" ")
            text.append(f"\n{word} {verdict}" + (f"\n  {order}" if order else ""), style="red")
    return text


def _rendered(view: Table, color: bool, width: int) -> str:
    measure = Console(width=10_000, file=io.StringIO())
    needed = measure.measure(view).maximum
    console = Console(
        file=io.StringIO(), width=max(width, needed), force_terminal=color, no_color=not color, highlight=False
    )
    with console.capture() as captured:
        console.print(view)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
