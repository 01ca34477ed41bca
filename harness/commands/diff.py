"""``harness diff``: two runs compared."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.commands.history import DEFAULT
from harness.errors import UsageError
from harness.report.history import difference, difference_text
from harness.report.load import load_run
from harness.report.store import Entry, Store, entries


@click.command()
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@click.option("--store", "path", type=click.Path(path_type=Path), default=DEFAULT, show_default=True)
def command(before: str, after: str, path: Path) -> None:
    """Show what differs between two runs: verdicts, orders, cells, versions, times.

    A RUN is a folder of evidence, or the name of a run that `harness history add` kept. Exit code 1 if a cell's
    verdict or order differs, or is in one run only.

    \b
    harness diff .harness/20261129-021700 .harness/20261130-021700
    """
    found = difference(_entries(before, path), _entries(after, path))
    click.echo(difference_text(found, before, after), nl=False)
    sys.exit(1 if found else 0)


def _entries(run: str, path: Path) -> list[Entry]:
    if Path(run).is_dir():
        return entries(load_run(Path(run)).records, run, "", "")
    if path.exists():
        with Store(path) as store:
            kept = store.run(run)
            if kept:
                return kept
    raise UsageError(f"run {run!r} is no folder of evidence, and no run kept in {path}")
