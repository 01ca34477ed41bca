"""The table for a pull request, with the versions and hardware it was measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.matrix.cell import Cell
from harness.matrix.result import SKIPPED, CellResult
from harness.report.grid import Grid, case
from harness.report.terminal import reasons, summary

_SIGNS = {"expected": "✅", "unexpected": "❌", "skipped": "⏭️", "unforeseen": "❌"}


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
    lines += [_row(header), _row(["---"] * len(header))]
    for row in grid.rows:
        cell = grid.first(row).cell
        lines.append(_row([cell.scenario, case(cell), *(_shown(grid.at.get((row, c))) for c in grid.columns)]))
    lines.append("")
    lines += [f"- {line}" for line in (*legend, *reasons(results))]
    lines.append(f"- versions: {_pairs(versions)}")
    lines.append(f"- hardware: {_pairs(hardware)}")
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
    sign = _SIGNS[result.standing]
    return (
        f"{sign} {SKIPPED}"
        if result.verdict == SKIPPED
        else (f"{sign} {result.verdict}<br>{result.order}, {result.seconds:.2f} s")
    )


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_escaped(value)}" for name, value in values.items())


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escaped(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
