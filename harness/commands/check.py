"""``harness check``: judge programs, flight-recorder dumps and evidence, running nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.errors import HarnessError, InputError, UsageError
from harness.model.progress import Model
from harness.record.checked import Checked, check_dumps, check_evidence, check_program

_PROGRAMS, _EVIDENCE = (".yaml", ".yml"), (".jsonl",)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and path.")
@click.option("--model", "models", multiple=True, help="Only these progress models, such as lane or lanes:2+buffered.")
def command(paths: tuple[Path, ...], as_json: bool, models: tuple[str, ...]) -> None:
    """Say of each PATH whether ranks' orders contradict each other, and which progress models hang, with the proof.

    PATH is a program file (.yaml), a folder of flight-recorder dumps (one pickle or JSON file a rank), a cell's
    evidence (.jsonl), or a folder of such files.

    Exit code 0 if all is clean, 1 if a hazard or failure was found, 2 if an input cannot be used.

    \b
    harness check dumps/                        which ranks part, where, and what would hang
    harness check program.yaml --model lane
    """
    chosen = [str(Model.parse(name)) for name in models]
    worst, first = 0, True
    for path in _inputs(paths):
        try:
            checked = _check(path, chosen)
        except (UsageError, HarnessError) as error:
            worst = 2
            if as_json:
                click.echo(json.dumps({"path": str(path), "error": str(error)}))
            click.echo(f"error: {error}", err=True)
            continue
        worst = max(worst, 0 if checked.clean else 1)
        if as_json:
            click.echo(json.dumps(checked.to_json()))
        else:
            click.echo(("" if first else "\n" + "-" * 80 + "\n") + checked.text())
            first = False
    sys.exit(worst)


def _inputs(paths: tuple[Path, ...]) -> Iterator[Path]:
    """The paths, folders of programs and evidence opened."""
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.suffix in _PROGRAMS + _EVIDENCE) if path.is_dir() else []
        yield from inside or [path]


def _check(path: Path, models: list[str]) -> Checked:
    if not path.exists():
        raise InputError("there is no such file or folder", file=path)
    if path.is_dir():
        return check_dumps(path, models)
    if path.suffix in _EVIDENCE:
        return check_evidence(path, models)
    if path.suffix in _PROGRAMS:
        return check_program(path, models)
    raise InputError("accepted are a program (.yaml), evidence (.jsonl), or the folder that holds the dumps", file=path)
