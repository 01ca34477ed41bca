"""``harness report``: a run's evidence as a table, Markdown, HTML, JUnit or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from harness.report.agreement import agreement
from harness.report.html import html
from harness.report.junit import junit
from harness.report.lanes import lanes_of
from harness.report.legend import legend
from harness.report.load import Run, load_runs, newest_run
from harness.report.markdown import markdown
from harness.report.merge import labs, merge
from harness.report.terminal import reasons, summary, table

#: GitHub takes 1 MiB of a job's summary.
_MOST_PICTURES = 30


def _legend(run: Run) -> list[str]:
    """What the backends are, and which models the real engines among them agree with."""
    return [*legend(r.cell.backend for r in run.results), *agreement(run.results)]


def _table(run: Run) -> str:
    results = run.results
    lines = [table(results, color=sys.stdout.isatty()), ""]
    lines += [*_legend(run), *reasons(results), summary(results)]
    return "\n".join(lines) + "\n"


def _markdown(run: Run) -> str:
    record = run.records[-1]
    unexpected = [r for r in run.records if r.result.standing == "unexpected"][:_MOST_PICTURES]
    pictures = {r.result.cell: lanes_of(r.path) for r in unexpected}
    return markdown(run.results, record.versions, record.hardware, _legend(run), pictures)


def _lines(run: Run) -> str:
    return "".join(json.dumps(result.to_json()) + "\n" for result in run.results)


def _times(run: Run) -> str:
    return json.dumps({r.cell.id: round(r.seconds, 3) for r in run.results}, indent=1, sort_keys=True) + "\n"


_FORMS: dict[str, Callable[[Run], str]] = {
    "table": _table,
    "markdown": _markdown,
    "html": lambda run: html(run, _legend(run)),
    "junit": lambda run: junit(run.results),
    "jsonl": _lines,
    "times": _times,
}
#: Not of one run but of several, side by side.
_MERGE = "merge"


@click.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice([*_FORMS, _MERGE]), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file (default: standard output).")
def command(folders: tuple[Path, ...], form: str, output: Path | None) -> None:
    """Show what came of a run, from the evidence in FOLDER (default: the newest run in .harness/).

    Several folders (shards, or several labs) are joined into one report. A format may also be named first.

    \b
    harness report                                  the table again
    harness report --format markdown                the table for a pull request, with versions and hardware
    harness report html .harness/RUN -o run.html    one file to look at: every cell, with its picture
    harness report merge LAB LAB...                 several labs side by side: what each ran on, ran, and did not run
    harness report --format times -o t.json         seconds by cell, for pytest --shard I/N --times t.json
    """
    if folders and str(folders[0]) in (*_FORMS, _MERGE) and not folders[0].exists():
        form, folders = str(folders[0]), folders[1:]
    if form == _MERGE:
        _write(merge(labs(folders or (newest_run(Path.cwd()),))), output)
        return
    run = load_runs(folders or (newest_run(Path.cwd()),))
    for path in run.unfinished:
        click.echo(f"{path}: breaks off before a result; left out", err=True)
    if not run.records:
        raise click.ClickException("no cell came to a result")
    _write(_FORMS[form](run), output)


def _write(text: str, output: Path | None) -> None:
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
