"""The table of faults in the docs: written from what the tests saw, and read back."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"

#: Rows that are no fault of a rank's: no room for evidence, and what ends pytest from outside.
FULL_DISK = "disk full, for evidence"
SIGNALS = {
    signal.SIGINT: "pytest interrupted",
    signal.SIGKILL: "pytest killed by signal 9",
    signal.SIGHUP: "pytest's terminal closed",
    signal.SIGTERM: "pytest ended by signal 15",
}

HEAD = """# What goes wrong in a rank, and what you are told

Every row was produced by `tests/faults` on {sizes} ranks, on gloo (a real engine, listened to) and on lane (a model
over gloo); write it anew with `HARNESS_FAULTS_TABLE=docs/faults.md python -m pytest tests/faults -m ""`. Seconds run
from the start of the task to the verdict, over all worlds; those that end in `timeout` had a limit of half a second.
Where pytest itself is ended they run from the signal until ranks, all they started, the fork server and pytest are
gone. A world that is kept serves the next task; one that is not is replaced by a new one.

| fault | verdict | you are told (lane, largest world) | gloo, s | lane, s | world kept: gloo, lane |
| --- | --- | --- | --- | --- | --- |
"""


class Row(NamedTuple):
    """What one fault came to in one world. ``tainted``: the world was replaced."""

    fault: str
    backend: str
    size: int
    verdict: str
    told: str
    seconds: float
    tainted: bool


def text(rows: Iterable[Row]) -> str:
    """The document."""
    faults: dict[str, list[Row]] = {}
    for row in rows:
        faults.setdefault(row.fault, []).append(row)
    sizes = sorted({row.size for seen in faults.values() for row in seen})
    lines = [HEAD.format(sizes=", ".join(map(str, sizes)))]
    for fault, seen in sorted(faults.items(), key=lambda item: item[0] in SIGNALS.values()):
        by = {backend: [row for row in seen if row.backend == backend] for backend in ("gloo", "lane")}
        told = " ".join(max(by["lane"], key=lambda row: row.size).told.splitlines()[:2])
        kept = ", ".join("no" if any(row.tainted for row in found) else "yes" for found in by.values())
        verdict = " or ".join(sorted({row.verdict for row in seen}))
        lines.append(
            f"| {fault} | {verdict} | {_cell(told)} | {_range(by['gloo'])} | {_range(by['lane'])} | {kept} |\n"
        )
    return "".join(lines)


def read(path: Path) -> dict[str, dict[str, str]]:
    """The document's rows: column name to text, by fault."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    head, _, *body = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return {cells[0]: dict(zip(head, cells, strict=True)) for cells in body}


def _range(rows: list[Row]) -> str:
    seconds = sorted(row.seconds for row in rows)
    return f"{seconds[0]:.2f} to {seconds[-1]:.2f}" if seconds else "-"


def _cell(line: str, width: int = 160) -> str:
    line = line.strip().replace("|", "\\|").replace(str(Path.cwd()) + "/", "")
    return line if len(line) <= width else line[: width - 3] + "..."
