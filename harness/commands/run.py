"""``harness run``: a program file for real, and whether the model foretold what it did."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from harness import backends
from harness.errors import BackendError
from harness.model.program import Program


@click.command()
@click.argument("path", metavar="PROGRAM", type=click.Path(path_type=Path))
@click.option("--backend", default="lane", show_default=True, help="A real engine, or a model over one.")
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds.")
@click.option("--record", "folder", type=click.Path(path_type=Path), help="Write flight-recorder dumps there.")
@click.option("--evidence", type=click.Path(path_type=Path), help="Write the evidence to this file (.jsonl).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(path: Path, backend: str, limit: float, folder: Path | None, evidence: Path | None, as_json: bool) -> None:
    """Run PROGRAM in a world of its size, with inputs that show whose data they are, and compare with the model.

    Exit code 0 if it did what the model allows, 1 if not, 2 if it cannot be run.

    \b
    harness run scenarios/public/seed.yaml --backend lane
    harness run seed.yaml --backend gloo --record dumps && torchfrtrace dumps
    """
    program = Program.load(path)
    reason = backends.get(backend).available()
    if reason is not None:
        raise BackendError(f"backend {backend}: {reason}")

    from harness.programs.run import mixed_results, run_program  # only now: it brings torch
    from harness.record.flight.export import export
    from harness.world.world import World

    with World(program.world, backend) as world:
        ran = run_program(program, world, limit=limit)
        transport = world.spec.transport
    mixed = mixed_results(ran, program)
    report: dict[str, Any] = {
        "path": str(path),
        "backend": backend,
        "verdict": ran.verdict.verdict,
        "order": ran.verdict.order,
        "seen": sorted(ran.seen),
        "model": sorted(ran.allowed),
        "agrees": ran.agrees,
        "mixed": mixed,
        "seconds": round(ran.seconds, 3),
    }
    if evidence is not None:
        evidence.write_text("".join(json.dumps(line, default=str) + "\n" for line in ran.lines), encoding="utf-8")
    if folder is not None:
        written = export(ran.lines, folder, world=program.world, transport=transport)
        report["dumps"] = [str(p) for p in written]
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(_text(report, ran.verdict.explanation))
    sys.exit(0 if ran.agrees else 1)


def _text(report: dict[str, Any], explanation: str) -> str:
    rows = [
        f"{report['path']} on {report['backend']}: {', '.join(report['seen'])} (order {report['order']}, "
        f"{report['seconds']:.2f} s)",
        "the model says the same"
        if report["seen"] == report["model"]
        else f"the model allows {', '.join(report['model'])}" + ("" if report["agrees"] else ": THEY DISAGREE"),
        "",
        explanation,
        *report["mixed"],
    ]
    if "dumps" in report:
        rows += ["", f"dumps: {report['dumps'][0]} and {len(report['dumps']) - 1} more"]
    return "\n".join(rows)
