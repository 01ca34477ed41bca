"""``harness replay``: one cell again, by its token."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from harness.errors import UsageError
from harness.matrix.cell import Cell
from harness.matrix.names import check_cell
from harness.matrix.plan import Expectation, Planned, load_matrix
from harness.matrix.result import SKIPPED


@click.command()
@click.argument("token")
@click.option("--matrix", "path", type=click.Path(path_type=Path), default=Path("matrix.yaml"), show_default=True)
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), default=1, show_default=True, help="Run it so many times.")
@click.option(
    "--evidence", type=click.Path(path_type=Path), help="Where evidence goes (default: a folder in .harness/)."
)
def command(token: str, path: Path, limit: float, times: int, evidence: Path | None) -> None:
    """Run the cell that TOKEN names, and show its verdict and why.

    Exit code 0 if that is what the matrix expects (or, for a cell that is in no suite, if it completes), else 1.

    \b
    harness replay deepspeed_zero3_group_order/lane/4/dp_edp/split/installed
    """
    cell = Cell.parse(token)
    fault = check_cell(cell)
    if fault:
        raise UsageError(f"token {token!r}: {fault[0]}: {fault[1]}")

    from harness.matrix.run import run_cell  # only now: it brings the rooms that start ranks
    from harness.world import pool

    expectation = _expectation(path, cell)
    folder = (evidence or Path(".harness") / time.strftime("%Y%m%d-%H%M%S-replay")).absolute()
    met = True
    try:
        for turn in range(times):
            result = run_cell(Planned(cell, expectation, limit=limit), folder if times == 1 else folder / str(turn + 1))
            click.echo(f"{result.verdict}, order {result.order}, {result.seconds:.2f} s; expected: {expectation}")
            if result.reason and turn == 0:
                click.echo(f"\n{result.reason}\n")
            met = met and result.standing == "expected"
    finally:
        pool.close_all()
    click.echo(f"evidence: {folder}")
    if result.verdict == SKIPPED:
        click.echo("the cell can't run here", err=True)
    sys.exit(0 if met else 1)


def _expectation(path: Path, cell: Cell) -> Expectation:
    found = load_matrix(path, check_cell).expectation(cell) if path.exists() else None
    return found or Expectation(("completes",))
