"""``python -m harness.rank``: what torchrun, srun and mpirun start, once a rank.

    torchrun --nproc-per-node=4 -m harness.rank --pytest "scenarios --suite lab"

runs pytest beside rank 0. With ``--connect HOST:PORT`` alone, ranks serve a pytest that was started by hand with
``HARNESS_RANKS=4 HARNESS_LISTEN=HOST:PORT``.
"""

from __future__ import annotations

import shlex
import sys

import click

from harness.errors import HarnessError
from harness.world import agent
from harness.world.key import DEFAULT, key, parse
from harness.world.place import Place


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--connect", default=DEFAULT, envvar="HARNESS_LISTEN", show_default=True, help="HOST:PORT of pytest.")
@click.option("--pytest", metavar="ARGUMENTS", help="Have rank 0 run pytest with these arguments.")
def main(connect: str, pytest: str | None) -> None:
    """Be one rank's agent. The key is HARNESS_KEY, or a file that all of the user's processes share."""
    try:
        arguments = None if pytest is None else shlex.split(pytest)
        sys.exit(agent.main(Place.of(), parse(connect), key(), arguments))
    except HarnessError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
