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
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file (default: standard output).")
def command(path: Path, suite: str | None, form: str, output: Path | None) -> None:
    """Check matrix.yaml, and list its suites or the cells of one.

    \b
    harness matrix                   the suites, and how many cells each has
    harness matrix --suite pr        the cells of one
    harness matrix --suite nightly --format github      its jobs, for fromJSON in a workflow
    """
    matrix = load_matrix(path, check_cell)
    names = [suite] if suite else list(matrix.suites)
    if form == "github":
        text = json.dumps({"include": jobs(matrix, names)})
    elif form == "json":
        text = json.dumps({name: [_plain(p) for p in matrix.suite(name)] for name in names}, indent=2)
    elif suite:
        text = "\n".join(f"{planned.cell.token:<84} {planned.expectation}" for planned in matrix.suite(suite))
    else:
        text = "\n".join(_suite_line(matrix, name) for name in names)
    if output:
        output.write_text(text + "\n", encoding="utf-8")
    else:
        click.echo(text)


def _suite_line(matrix: Matrix, name: str) -> str:
    planned = matrix.suite(name)
    backends = ", ".join(dict.fromkeys(p.cell.backend for p in planned))
    return f"{name:<10}{len(planned):>5} cells  {matrix.about[name]} ({backends})"


def _plain(planned: Planned) -> dict[str, object]:
    return {
        "token": planned.cell.token,
        "cell": planned.cell.to_json(),
        "expect": planned.expectation.to_json(),
        "may_skip": planned.may_skip,
        "limit": planned.limit,
    }
