"""``harness doctor``: what is installed here, which backends can run, and what will get in the way."""

from __future__ import annotations

import json
import sys

import click

from harness.doctor import Checkup, Finding, examine, python

#: What every machine that runs this is expected to have.
USUAL = ("gloo", "lane")


@click.command()
@click.option("--backend", "wanted", multiple=True, help="A backend that must be able to run here; repeat it for more.")
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def command(wanted: tuple[str, ...], as_json: bool) -> None:
    """Say what is installed, which backends can run here, and for each other one why not and what to install.

    Exit code 0 if gloo and the models over it (or each --backend given) can run here and nothing is known that would
    fail or hang; else 1.

    \b
    harness doctor
    harness doctor --backend nccl && tox run -e lab-cuda
    """
    checkup = examine(wanted)
    healthy = checkup.healthy(wanted or USUAL)
    if as_json:
        click.echo(json.dumps({"healthy": healthy, **checkup.to_json()}, indent=2))
    else:
        click.echo("\n".join(_text(checkup)))
    sys.exit(0 if healthy else 1)


def _text(checkup: Checkup) -> list[str]:
    lines = ["backends"]
    width = max(map(len, checkup.lacking))
    runs = [name for name, reason in checkup.lacking.items() if not reason]
    lines += [f"  {'runs here':{width}}  {', '.join(runs)}"] if runs else []
    lines += [f"  {name:{width}}  {reason}" for name, reason in checkup.lacking.items() if reason]
    lines += ["", "devices", f"  {', '.join(checkup.devices) or 'no accelerator'}"]
    lines += ["  " + ", ".join(f"{name} {value}" for name, value in checkup.hardware.items())]
    lines += ["", "installed", f"  python: {python()}"]
    lines += ["  " + ", ".join(f"{name} {version}" for name, version in checkup.versions.items() if name != "python")]
    lines += ["", "limits and traps"]
    lines += [_line(found) for found in sorted(checkup.findings, key=lambda found: not found.fault)]
    return lines


def _line(found: Finding) -> str:
    text = f"  {'FAULT ' if found.fault else ''}{found.subject}: {found.text}"
    return f"{text}; {found.remedy}" if found.remedy else text
