"""``harness timeline``: a cell's evidence as a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.record.evidence import read
from harness.report.timeline import timeline


@click.command()
@click.argument("evidence", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file (default: standard output).")
def command(evidence: Path, output: Path | None) -> None:
    """Write what every rank of a cell did, from its EVIDENCE file, as a trace for Perfetto or chrome://tracing.

    \b
    harness timeline .harness/RUN/CELL.jsonl -o trace.json
    """
    text = json.dumps(timeline(read(evidence)))
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text)
