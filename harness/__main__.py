"""``python -m harness``: the command line, where its script is not on the path."""

from harness.cli import main

main(prog_name="harness")
