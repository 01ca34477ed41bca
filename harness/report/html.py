"""The HTML report: one file that needs nothing else, with the matrix at a glance and a page per cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from harness.matrix.result import SKIPPED, CellResult, count
from harness.record.evidence import read
from harness.report.grid import Grid, case
from harness.report.load import Record, Run
from harness.report.picture import picture
from harness.report.terminal import WORDS, reasons

_PAGE = files("harness.report") / "page"


@dataclass(frozen=True)
class _Stack:
    rank: int
    what: str
    text: str


@dataclass(frozen=True)
class _Page:
    """One cell's page. ``picture`` is JSON."""

    result: CellResult
    case: str
    evidence: str
    versions: str
    picture: str
    stacks: list[_Stack]


def html(run: Run, legend: Sequence[str], title: str = "collective harness") -> str:
    """The report of a run. Raises InputError where a cell's evidence can't be read."""
    results = run.results
    grid = Grid.of(results)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in grid.rows:
        cell = grid.first(row).cell
        shown = [grid.at.get((row, column)) for column in grid.columns]
        rows.setdefault(cell.scenario, []).append({"case": case(cell), "results": shown})
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_PAGE / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        style=Markup((_PAGE / "page.css").read_text(encoding="utf-8")),
        script=Markup((_PAGE / "page.js").read_text(encoding="utf-8")),
        counts=count(results),
        words=WORDS,
        backends=list(dict.fromkeys(r.cell.backend for r in results)),
        variants=list(dict.fromkeys(r.cell.variant for r in results)),
        scenarios=rows,
        columns=grid.columns,
        notes=[*legend, *reasons(results), *(f"{path.name}: breaks off; left out" for path in run.unfinished)],
        versions=_pairs(run.records[-1].versions),
        hardware=_pairs(run.records[-1].hardware),
        pages=[_page(record) for record in run.records],
    )


def _page(record: Record) -> _Page:
    result = record.result
    drawn, stacks = "", []
    if result.verdict != SKIPPED:
        lines = read(record.path)
        drawn = json.dumps(picture(lines).to_json(), separators=(",", ":"))
        stacks = list(_stacks(lines))
    return _Page(result, case(result.cell), record.path.name, _pairs(record.versions), drawn, stacks)


def _stacks(lines: Sequence[Mapping[str, Any]]) -> Iterator[_Stack]:
    """What each rank that failed raised, and where: a blocked call raises in its own rank."""
    for line in lines:
        if line["type"] == "rank" and line.get("error"):
            error = line["error"]
            yield _Stack(line["rank"], f"{error['type']}", error.get("traceback") or error["message"])


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
