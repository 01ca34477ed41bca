"""Several labs' records as one table, with what each ran on, how, and what it did not run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.matrix.cell import Cell
from harness.matrix.result import SKIPPED, CellResult
from harness.report.agreement import agreement
from harness.report.grid import Row, case, column_of
from harness.report.legend import legend
from harness.report.load import Record, load_run
from harness.report.markdown import SIGNS, escaped, pairs, row
from harness.report.terminal import reasons, summary

#: A lab's name, the backend and the variant.
_Column = tuple[str, str, str]


@dataclass(frozen=True)
class Lab:
    """One lab's record: a folder of evidence, and those of its files that break off."""

    name: str
    records: Sequence[Record]
    unfinished: Sequence[Path]

    @property
    def results(self) -> list[CellResult]:
        return [record.result for record in self.records]


def labs(folders: Sequence[Path]) -> list[Lab]:
    """A lab for each folder, by the folder's name. Raises UsageError for a folder without evidence."""
    found: list[Lab] = []
    for folder in folders:
        run = load_run(folder)
        name = folder.resolve().name
        again = sum(lab.name.partition("#")[0] == name for lab in found)
        found.append(Lab(f"{name}#{again + 1}" if again else name, run.records, run.unfinished))
    return found


def merge(found: Sequence[Lab]) -> str:
    """Markdown: the table over all labs, then a section for each. Cells that no lab ran are in none of its columns."""
    everything = [result for lab in found for result in lab.results]
    lines = [f"**{len(found)} labs, {summary(everything)}**", "", *_table(found), ""]
    backends = dict.fromkeys(result.cell.backend for result in everything if result.verdict != SKIPPED)
    lines += [f"- {line}" for line in (*legend(backends), *agreement(everything))]
    cells = {record.result.cell for lab in found for record in lab.records if record.result.verdict != SKIPPED}
    for lab in found:
        lines += ["", f"### {lab.name}", "", *_section(lab, cells)]
    return "\n".join(lines) + "\n"


def _table(found: Sequence[Lab]) -> list[str]:
    """A row per case, a column per lab, backend and variant; what was skipped everywhere has none."""
    at: dict[tuple[Row, _Column], CellResult] = {}
    for lab in found:
        for result in lab.results:
            if result.verdict != SKIPPED:
                at[result.cell.row, (lab.name, *column_of(result.cell))] = result
    rows = {key: result.cell for (key, _), result in at.items()}
    columns = list(dict.fromkeys(column for _, column in at))
    lines = [row(["scenario", "ranks, topology, arrival", *("<br>".join(column) for column in columns)])]
    lines.append(row(["---"] * (len(columns) + 2)))
    for key, cell in rows.items():
        shown = [_shown(at.get((key, column))) for column in columns]
        lines.append(row([cell.scenario, case(cell), *shown]))
    return lines


def _shown(result: CellResult | None) -> str:
    if result is None:
        return "not run"
    return f"{SIGNS[result.standing]} {result.verdict}<br>{result.order}, {result.seconds:.2f} s"


def _section(lab: Lab, cells: set[Cell]) -> list[str]:
    """What the lab ran on and how, what it skipped and why, and what others ran that it did not."""
    lines = [f"- {summary(lab.results)}"]
    machines = [{k: v for k, v in record.hardware.items() if k != "command"} for record in lab.records]
    lines += [f"- hardware: {text}" for text in dict.fromkeys(map(pairs, machines))]
    lines += [f"- versions: {text}" for text in dict.fromkeys(pairs(record.versions) for record in lab.records)]
    commands = dict.fromkeys(escaped(record.hardware.get("command", "unknown")) for record in lab.records)
    lines += [f"- command: `{text}`" for text in commands]
    for name, value in _notes(lab.records).items():
        lines.append(f"- {name}: {escaped(value)}")
    lines += [f"- {line}" for line in reasons(lab.results)]
    ran = {result.cell for result in lab.results if result.verdict != SKIPPED}
    absent = [cell for cell in cells - ran if cell.backend in {c.backend for c in ran}]
    if absent:
        lines.append(f"- not run here, but elsewhere on the same backends: {len(absent)} cells")
    lines += [f"- not over: {path.name}" for path in lab.unfinished]
    lines += [
        f"- unexpected: `harness replay {r.cell.token}`: {r.verdict} ({r.order}), want {r.expectation}"
        for r in lab.results
        if r.standing == "unexpected"
    ]
    return lines


def _notes(records: Sequence[Record]) -> Mapping[str, Any]:
    """What backends noted of devices, drivers and libraries: the first note of each name and backend."""
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for record in records:
        if record.result.cell.backend in seen or record.result.verdict == SKIPPED:
            continue
        seen.add(record.result.cell.backend)
        for text in record.path.read_text(encoding="utf-8").splitlines():
            if '"type":"note"' in text.replace(" ", "")[:200]:
                line = json.loads(text)
                if line["name"] in ("device", "oneccl", "mpi"):
                    found.setdefault(f"{record.result.cell.backend}, {line['name']}", line["value"])
    return found
