"""The command ``harness``: each subcommand is a module of ``harness.commands``, imported only when it is called.

So ``harness --help`` is fast, and works where torch is not installed.
"""

from __future__ import annotations

import importlib

import click

from harness.errors import UsageError

#: Subcommand to its one-line help, in the order shown; ``harness.commands.NAME`` holds a click command ``command``.
COMMANDS = {
    "check": "Judge programs, flight-recorder dumps and evidence: order, models, proofs.",
    "run": "Run a program for real on a backend, and compare with the model.",
    "exec": "Run any torch.distributed script under a backend, recorded and watched.",
    "replay": "Run one cell again, by the token that a failure printed.",
    "matrix": "Check matrix.yaml; list its suites and cells.",
    "report": "Show a run's evidence as a table, Markdown, HTML, JUnit or JSON lines.",
    "timeline": "Write a cell's evidence as a trace for Perfetto or chrome://tracing.",
    "history": "Show each cell over many runs: flakes, time drift.",
    "diff": "Compare two runs.",
    "compare": "Run a scenario with two checkouts or releases of DeepSpeed, side by side.",
    "doctor": "Say what is installed, which backends can run here, and what is in the way.",
}


class LazyGroup(click.Group):
    """Lists ``COMMANDS`` without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"harness.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Errors of use end with exit code 2 and their message, not with a traceback."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise click.UsageError(str(error)) from None


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="collective-harness", prog_name="harness")
def main() -> None:
    """Prove, replay and explain collective-ordering failures of distributed training.

    Exit codes: 0 as expected, 1 a failure was found, 2 wrong use.
    """
