"""``harness exec``: any torch.distributed script under the recorder, a model and the watchdog."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path

import click

from harness import backends
from harness.errors import BackendError, UsageError


@click.command(context_settings={"allow_interspersed_args": False})  # what follows SCRIPT is its own
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- SCRIPT [ARG]...")
@click.option("--nproc", type=click.IntRange(min=1), help="Start so many ranks (default: SCRIPT is a launcher).")
@click.option("--backend", default="lane", show_default=True, help="In place of whatever backend the script names.")
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, help="Seconds.")
@click.option("--strict", is_flag=True, help="Exit code 1 also for an order hazard in a run that completed.")
@click.option("--evidence", type=click.Path(path_type=Path), help="Where it goes (default: a folder in .harness/).")
def command(
    words: tuple[str, ...], nproc: int | None, backend: str, limit: float, strict: bool, evidence: Path | None
) -> None:
    """Run SCRIPT, unmodified, as the ranks of a world; show its verdict, why, and order hazards.

    With --nproc it is started once per rank with the variables of torchrun. Without, it is a launcher (torchrun,
    deepspeed, mpirun) or spawns its ranks itself; they must run on this machine.

    Exit code 0 if it completes, 1 for any other verdict, 2 for wrong use.

    \b
    harness exec --nproc 4 -- train.py --steps 10
    harness exec --backend lanes:2 -- deepspeed --num_gpus 4 train.py --deepspeed_config ds.json
    """
    program = _program(words, nproc)
    reason = backends.get(backend).available()
    if reason is not None:
        raise BackendError(f"backend {backend}: {reason}")

    from harness.script.run import run_script

    folder = (evidence or Path(".harness") / time.strftime("%Y%m%d-%H%M%S-exec")).absolute()
    options = [f"--nproc {nproc}"] if nproc else []
    again = " ".join(["harness exec", *options, f"--backend {backend}", "--", shlex.join(words)])
    outcome = run_script(program, words, backend, nproc=nproc, limit=limit, folder=folder, again=again)
    click.echo(outcome.text)
    hazard = strict and outcome.order == "cyclic"
    sys.exit(0 if outcome.verdict == "completes" and not hazard else 1)


def _program(words: tuple[str, ...], nproc: int | None) -> list[str]:
    """What is started: a script by this interpreter, anything else as it is."""
    first = words[0]
    if nproc is None:
        if first.endswith(".py") or first == "-m":
            raise UsageError(
                f"{first}: give --nproc N before it to start it N times, or name a launcher (or python) before it"
            )
        if shutil.which(first) is None:
            raise UsageError(f"{first}: there is no such program in PATH; a launcher (or python) is expected")
        return list(words)
    if first == "-m" or first.endswith(".py"):
        if first != "-m" and not Path(first).is_file():
            raise UsageError(f"{first}: there is no such script")
        return [sys.executable, *words]
    if Path(first).name.startswith("python"):
        return list(words)
    raise UsageError(f"{first}: with --nproc a Python script (or -m MODULE) is expected; a launcher takes no --nproc")
