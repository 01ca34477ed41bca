"""The HTML report beside the evidence it is made from."""

from __future__ import annotations

from pathlib import Path

from harness.report.agreement import agreement
from harness.report.html import html
from harness.report.legend import legend
from harness.report.load import load_run

NAME = "report.html"


def write_html(folder: Path) -> Path:
    """Write the report of the run in ``folder`` into it; returns where it is. Raises what reading the run raises."""
    run = load_run(folder)
    path = folder / NAME
    notes = [*legend(result.cell.backend for result in run.results), *agreement(run.results)]
    path.write_text(html(run, notes), encoding="utf-8")
    return path
