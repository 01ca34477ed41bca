"""``python -m harness.matrix.side FOLDER LIMIT TOKEN...``: run cells here, one JSON line each, for `harness compare`.

A process of its own, so that each side of a comparison has its own package under test from the first import on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.matrix.cell import Cell
from harness.matrix.plan import Expectation, Planned
from harness.matrix.run import run_cell
from harness.world import pool

#: What a comparison expects: nothing in particular.
ANYTHING = Expectation(
    ("completes", "deadlock", "missing", "mismatch", "silent_mix", "wrong_values", "crashed", "timeout", "unknown")
)


def main() -> None:
    """Run the cells one after another; a result line each on standard output."""
    folder, limit, *tokens = sys.argv[1:]
    try:
        for token in tokens:
            planned = Planned(Cell.parse(token), ANYTHING, may_skip="not in this release", limit=float(limit))
            sys.stdout.write(json.dumps(run_cell(planned, Path(folder)).to_json()) + "\n")
            sys.stdout.flush()
    finally:
        pool.close_all()


if __name__ == "__main__":
    main()
