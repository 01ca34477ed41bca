"""``python -m benchmarks NAME... [--list] [--json]``."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import benchmarks

KEYS = ("name", "value", "unit", "peer", "ratio", "bar", "holds")


def names() -> list[str]:
    """The benchmarks there are: the public modules of this package."""
    return [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_")]


def measure(name: str) -> Iterator[dict[str, Any]]:
    """Run one benchmark; says on stderr what is measured so far. Raises ValueError for a row with other keys."""
    click.echo(f"measuring {name} ...", err=True)
    for row in importlib.import_module(f"benchmarks.{name}").run():
        if tuple(row) != KEYS:
            raise ValueError(f"benchmark {name}: a row has the keys {list(row)}; expected {list(KEYS)}")
        click.echo(f"  {row['name']}: {_text(row['value'])} {row['unit']}", err=True)
        yield row


def table(rows: list[dict[str, Any]]) -> Table:
    """Rows for people."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    for key in KEYS:
        view.add_column(key, justify="right" if key in ("value", "peer", "ratio") else "left")
    for row in rows:
        style = None if row["holds"] else "red"
        view.add_row(*(_text(row[key]) for key in KEYS), style=style)
    return view


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("wanted", metavar="NAME...", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Show the benchmarks there are.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as a JSON list.")
def main(wanted: tuple[str, ...], listing: bool, as_json: bool) -> None:
    """Measure the harness beside its peers. Exit code 1 if a bar is missed, 2 on wrong use."""
    known = names()
    if listing:
        for name in known:
            about = (importlib.import_module(f"benchmarks.{name}").__doc__ or "").splitlines()[0]
            click.echo(f"{name:<12}{about}")
        return
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        what = f"no benchmark {unknown[0]!r}" if unknown else "which benchmark?"
        raise click.UsageError(f"{what} (there are: {', '.join(known)})")
    rows = [row for name in wanted for row in measure(name)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 160).print(table(rows))
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
