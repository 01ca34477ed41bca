"""``harness history``: every cell over many runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.errors import UsageError
from harness.report.history import drifts, flakes, history_text
from harness.report.load import load_runs
from harness.report.store import Store, commit_here, entries, now

DEFAULT = Path("history.jsonl")
_STORE = click.option(
    "--store",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT,
    show_default=True,
    help="Results kept so far, JSON lines; an SQLite index is made beside it.",
)


@click.group(invoke_without_command=True)
@_STORE
@click.option("--cell", default="*", help="Only cells whose id matches; * stands for any text.")
@click.option("--last", type=click.IntRange(min=1), default=60, show_default=True, help="So many runs.")
@click.option("--flakes", "only_flakes", is_flag=True, help="Only what flakes or drifts; exit code 1 if one flakes.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file (default: standard output).")
@click.pass_context
def command(ctx: click.Context, path: Path, cell: str, last: int, only_flakes: bool, output: Path | None) -> None:
    """Show each cell over time: verdicts as a strip, flakes (one commit, several outcomes), time drift.

    \b
    harness history add .harness/RUN         keep a run's results (the nightly does it)
    harness history --cell '*lane*'          the cells on lane, over the last runs
    harness history --flakes                 only what is not steady
    """
    if ctx.invoked_subcommand:
        return
    if not path.exists():
        raise UsageError(f"{path}: no results are kept there; `harness history add FOLDER` keeps a run's")
    with Store(path) as store:
        cells, runs = store.cells(cell, last), store.runs()[-last:]
    if not cells:
        raise UsageError(f"--cell {cell!r}: matches none of the cells kept in {path}")
    unsteady = [flake for flake in flakes(cells) if not flake.foreseen]
    if only_flakes:
        shown = {flake.cell for flake in flakes(cells)} | {drift.cell for drift in drifts(cells)}
        cells = {name: history for name, history in cells.items() if name in shown}
    text = history_text(cells, runs)
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    sys.exit(1 if only_flakes and unsteady else 0)


@command.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(path_type=Path))
@_STORE
@click.option("--run", help="The run's name (default: the last folder's).")
@click.option("--commit", help="The commit under test (default: what the CI or git says).")
@click.option("--time", "when", help="When it ran, as in 2026-11-30T02:17:00Z (default: now).")
def add(folders: tuple[Path, ...], path: Path, run: str | None, commit: str | None, when: str | None) -> None:
    """Keep the results of a run, from its evidence in FOLDER (several: shards of one run)."""
    found = load_runs(folders)
    for broken in found.unfinished:
        click.echo(f"{broken}: breaks off before a result; left out", err=True)
    name = run or folders[-1].resolve().name
    commit = commit_here(Path.cwd()) if commit is None else commit
    with Store(path) as store:
        store.add(entries(found.records, name, commit, when or now()))
    click.echo(f"{path}: run {name}, {len(found.records)} cells at {commit[:10] or 'an unknown commit'}")
