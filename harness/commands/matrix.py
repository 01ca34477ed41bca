"""``harness matrix``: what the suites of a matrix hold."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.matrix.jobs import jobs
from harness.matrix.names import check_cell
from harness.matrix.plan import Matrix, Planned, load_matrix


@click.command()
@click.option("--matrix", "path", type=click.Path(path_type=Path), default=Path("matrix.yaml"), show_default=True)
@click.option("--suite", help="List the cells of this suite, with their tokens and what is expected.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
def command(path: Path, suite: str | None, form: str) -> None:
    """Check matrix.yaml, and list its suites or the cells of one.

    \b
    harness matrix                   the suites, and how many cells each has
    harness matrix --suite pr        the cells of one
    harness matrix --suite nightly --format github      its jobs, for fromJSON in a workflow
    """
    matrix = load_matrix(path, check_cell)
    if form == "github":
        click.echo(json.dumps({"include": jobs(matrix, [suite] if suite else list(matrix.suites))}))
    elif form == "json":
        names = [suite] if suite else list(matrix.suites)
        click.echo(json.dumps({name: [_plain(p) for p in matrix.suite(name)] for name in names}, indent=2))
    elif suite:
        for planned in matrix.suite(suite):
            click.echo(f"{planned.cell.token:<84} {planned.expectation}")
    else:
        _list_suites(matrix)


def _list_suites(matrix: Matrix) -> None:
    for name, planned in matrix.suites.items():
        backends = ", ".join(dict.fromkeys(p.cell.backend for p in planned))
        click.echo(f"{name:<10}{len(planned):>5} cells  {backends:<24}  {matrix.about[name]}")


def _plain(planned: Planned) -> dict[str, object]:
    return {
        "token": planned.cell.token,
        "cell": planned.cell.to_json(),
        "expect": planned.expectation.to_json(),
        "may_skip": planned.may_skip,
        "limit": planned.limit,
    }
