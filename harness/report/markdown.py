"""The table for a pull request, with the versions and hardware it was measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.matrix.cell import Cell
from harness.matrix.result import SKIPPED, CellResult
from harness.report.grid import Grid, case
from harness.report.terminal import reasons, summary

SIGNS = {"expected": "✅", "unexpected": "❌", "skipped": "⏭️", "unforeseen": "❌"}


def markdown(
    results: Sequence[CellResult],
    versions: Mapping[str, str],
    hardware: Mapping[str, object],
    legend: Sequence[str],
    pictures: Mapping[Cell, str] | None = None,
) -> str:
    """Markdown text, ending in a line break. ``legend`` says what the backends are (models are not engines).

    ``pictures`` are those of unexpected cells, as `harness.report.lanes` draws them.
    """
    lines = [f"**{summary(results)}**", ""]
    grid = Grid.of(results)
    header = ["scenario", "ranks, topology, arrival", *(f"{backend}<br>{variant}" for backend, variant in grid.columns)]
    lines += [row(header), row(["---"] * len(header))]
    for key in grid.rows:
        cell = grid.first(key).cell
        lines.append(row([cell.scenario, case(cell), *(_shown(grid.at.get((key, c))) for c in grid.columns)]))
    lines.append("")
    lines += [f"- {line}" for line in (*legend, *reasons(results))]
    lines.append(f"- versions: {pairs(versions)}")
    lines.append(f"- hardware: {pairs(hardware)}")
    unexpected = [r for r in results if r.standing == "unexpected"]
    if unexpected:
        lines += ["", "Unexpected:", ""]
    for r in unexpected:
        lines.append(f"- `{r.replay}`: {r.verdict} ({r.order}), want {r.expectation}")
        drawn = (pictures or {}).get(r.cell, "").replace("`", "'")
        if drawn:
            lines += ["", "  ```text", *(f"  {line}" for line in drawn.splitlines()), "  ```", ""]
    return "\n".join(lines) + "\n"


def _shown(result: CellResult | None) -> str:
    if result is None:
        return ""
    sign = SIGNS[result.standing]
    return (
        f"{sign} {SKIPPED}"
        if result.verdict == SKIPPED
        else (f"{sign} {result.verdict}<br>{result.order}, {result.seconds:.2f} s")
    )


def pairs(values: Mapping[str, object]) -> str:
    """Names and values in a line."""
    return ", ".join(f"{name} {escaped(value)}" for name, value in values.items())


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def escaped(value: object) -> str:
    """The value as text that breaks no table."""
    return str(value).replace("|", "\\|").replace("\n", " ")
