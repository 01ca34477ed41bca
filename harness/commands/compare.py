"""``harness compare``: two checkouts or releases of the package under test, side by side."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from harness.errors import UsageError, WorldError
from harness.matrix.cell import Cell
from harness.matrix.names import check_cell
from harness.matrix.plan import load_matrix
from harness.matrix.result import CellResult
from harness.report.terminal import reasons, table
from harness.variants.overlay import environment, overlay


@click.command()
@click.option("--scenario", required=True, help="Whose cells to run.")
@click.option("--with", "with_", required=True, metavar="PATH_OR_VERSION", help="The side that has the change.")
@click.option("--without", required=True, metavar="PATH_OR_VERSION", help="The side that lacks it.")
@click.option("--suite", default="pr", show_default=True, help="Take the scenario's cells from this suite.")
@click.option("--backend", multiple=True, help="Only these backends (may be repeated).")
@click.option("--world", type=int, multiple=True, help="Only these world sizes (may be repeated).")
@click.option("--matrix", "path", type=click.Path(path_type=Path), default=Path("matrix.yaml"), show_default=True)
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds.")
def command(
    scenario: str,
    with_: str,
    without: str,
    suite: str,
    backend: Sequence[str],
    world: Sequence[int],
    path: Path,
    limit: float,
) -> None:
    """Run the scenario's cells with two DeepSpeeds as they are, each isolated in an overlay of its own, and one torch.

    Exit code 0 if both sides ran, whatever their verdicts, 2 on wrong use.

    \b
    harness compare --scenario deepspeed_zero3_group_order --without 0.19.8 --with ~/DeepSpeed
    """
    tokens = [cell.token for cell in _cells(path, suite, scenario, backend, world)]
    root = Path(".harness").absolute()
    run = root / time.strftime("%Y%m%d-%H%M%S-compare")
    sides = {role: overlay(what, root / "overlays") for role, what in (("without", without), ("with", with_))}
    results: list[CellResult] = []
    for role, (name, place) in sides.items():
        click.echo(f"{role}: {name}, {len(tokens)} cells", err=True)
        found = _side(place, run / role, limit, tokens)
        results += [replace(r, cell=replace(r.cell, variant=f"{role}: {name}")) for r in found]
    click.echo(table(results, color=sys.stdout.isatty()))
    for line in reasons(results):
        click.echo(line)
    click.echo(f"evidence: {run}")


def _cells(path: Path, suite: str, scenario: str, backends: Sequence[str], worlds: Sequence[int]) -> list[Cell]:
    """The suite's cells of the scenario, as installed, once each; UsageError if none is left."""
    planned = load_matrix(path, check_cell).suite(suite)
    cells = [replace(p.cell, variant="installed") for p in planned if p.cell.scenario == scenario]
    chosen = [c for c in cells if (not backends or c.backend in backends) and (not worlds or c.world in worlds)]
    if not chosen:
        known = ", ".join(dict.fromkeys(p.cell.scenario for p in planned))
        raise UsageError(f"suite {suite} has no such cells of scenario {scenario!r}; its scenarios: {known}")
    return list(dict.fromkeys(chosen))


def _side(place: Path, folder: Path, limit: float, tokens: Sequence[str]) -> list[CellResult]:
    """All cells in one process that uses the overlay."""
    command = [sys.executable, "-m", "harness.matrix.side", str(folder), str(limit), *tokens]
    done = subprocess.run(command, env=environment(place), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise WorldError(f"the side in {place} ended with exit code {done.returncode}; see above")
    return [CellResult.from_json(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
