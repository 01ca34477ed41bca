"""The HTML report: one file that needs nothing else, with the matrix at a glance and a page per cell."""

from __future__ import annotations

import json
import re
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
#: Evidence may be of any size, and a report must open: operations per cell, characters of one text of a cell that came
#: out as expected and of another, bytes of all pictures and texts.
MOST_MARKS, MOST_TEXT_EXPECTED, MOST_TEXT, MOST_BYTES = 20_000, 2_000, 20_000, 20_000_000
#: What no text shows: control characters, and those that change the direction of writing.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


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
    note: str
    stacks: list[_Stack]


def html(run: Run, legend: Sequence[str], title: str = "collective harness") -> str:
    """The report of a run."""
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
        pages=_pages(run.records),
    )


def _pages(records: Sequence[Record]) -> list[_Page]:
    """Every cell's page; where there is not room for all pictures and stacks, unexpected cells get theirs first."""
    room = MOST_BYTES
    drawn: dict[int, tuple[str, str, list[_Stack]]] = {}
    for at in sorted(range(len(records)), key=lambda at: records[at].result.standing != "unexpected"):
        record = records[at]
        if record.result.verdict == SKIPPED:
            drawn[at] = "", "", []
            continue
        data, note, stacks = _drawn(record)
        size = len(data) + sum(len(stack.text) for stack in stacks)
        if size > room:
            data, stacks = "", []
            note = "no picture and no stacks: the report would grow too large; a report of this cell alone has them"
        else:
            room -= size
        drawn[at] = data, note, stacks
    return [
        _Page(r.result, case(r.result.cell), r.path.name, _pairs(r.versions), *drawn[i]) for i, r in enumerate(records)
    ]


def _drawn(record: Record) -> tuple[str, str, list[_Stack]]:
    """The cell's picture as JSON, or why there is none; and its stacks."""
    try:
        lines = read(record.path)
        found = picture(lines)
        note = ""
        if len(found.marks) > MOST_MARKS:
            note = f"only the last {MOST_MARKS} of {len(found.marks)} operations are drawn"
        data = json.dumps(found.last(MOST_MARKS).to_json(), separators=(",", ":"))
        return (
            data,
            note,
            list(_stacks(lines, MOST_TEXT_EXPECTED if record.result.standing == "expected" else MOST_TEXT)),
        )
    except Exception as error:  # noqa: BLE001 - evidence may hold anything; the other cells' pages don't suffer
        return "", f"its evidence could not be drawn: {error!r}"[:MOST_TEXT], []


def _stacks(lines: Sequence[Mapping[str, Any]], most: int) -> Iterator[_Stack]:
    """What each rank raised, where (a blocked call raises in its own rank) or where it was found, and what it wrote."""
    for line in lines:
        if line["type"] != "rank":
            continue
        error = line.get("error")
        if error:
            yield _Stack(line["rank"], str(error["type"]), _end(error.get("traceback") or error["message"], most))
        for name, what in (("stack", "its threads when it was stopped"), ("stderr", "stderr"), ("stdout", "stdout")):
            if line.get(name) and not line["ok"]:
                yield _Stack(line["rank"], what, _end(line[name], most))


def _end(text: Any, most: int) -> str:
    """The end of a text, at most so many characters, all of them visible."""
    whole = str(text)
    return ("...\n" if len(whole) > most else "") + _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", whole[-most:])


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
