"""The progress machine: events a second on one core, compiled beside plain, and the cost of its import.

A single-threaded training job on a mesh, asynchronous with waits behind, that completes under every model.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from harness.model.compact import arrays_of
from harness.model.execution import Execution
from harness.model.fast import Arrays, settings
from harness.model.fast import run as run_fast
from harness.model.operation import Group, Operation
from harness.model.program import Call, Program, Statement, Wait
from harness.model.progress import Model
from harness.model.proof import outcome

ROWS = COLUMNS = 8
STEPS = 900
MODELS = ("independent", "lane", "lanes:4", "host_blocking", "first_use")
EVENTS_BAR, IMPORT_BAR = 1_000_000, 100.0
RUNS = 3


def mesh() -> Program:
    """Every rank: its column, its row and the world in turn, each call awaited one call later."""
    world = ROWS * COLUMNS
    rows = [Group(f"row{r}", tuple(range(r * COLUMNS, (r + 1) * COLUMNS))) for r in range(ROWS)]
    columns = [Group(f"column{c}", tuple(range(c, world, COLUMNS))) for c in range(COLUMNS)]
    whole = Group("W", tuple(range(world)))
    ranks = {}
    for rank in range(world):
        mine = (columns[rank % COLUMNS], rows[rank // COLUMNS], whole)
        ops = [Operation("all_reduce", group) for group in mine]
        statements: list[Statement] = [Call((ops[0],), "h0")]
        for step in range(1, STEPS):
            statements += [Call((ops[step % 3],), f"h{step % 2}"), Wait(f"h{(step - 1) % 2}")]
        ranks[rank] = {"main": (*statements, Wait(f"h{(STEPS - 1) % 2}"))}
    return Program(world, (*columns, *rows, whole), ranks)


def fast(arrays: Arrays, model: str) -> float:
    """Events a second, compiled."""
    how = settings(Model.parse(model))
    began = time.process_time()
    state = run_fast(arrays, **how)
    spent = time.process_time() - began
    if state.outcomes != {"completes"}:
        raise RuntimeError(f"{model}: {sorted(state.outcomes)}")
    return state.events / spent


def plain(program: Program, events: int, model: str) -> float:
    """Events a second, as ranks' live events are judged."""
    began = time.process_time()
    execution = Execution(program, Model.parse(model))
    execution.run()
    spent = time.process_time() - began
    if outcome(execution.progress) != {"completes"}:
        raise RuntimeError(f"{model}: does not complete")
    return events / spent


def import_ms() -> float:
    """CPU milliseconds to import ``harness.model`` and what judges programs; raises if that brings torch."""
    code = (
        "import time; t = time.process_time(); "
        "import harness.model.outcomes, harness.model.order, harness.model.explain; "
        "import sys; assert 'torch' not in sys.modules; print((time.process_time() - t) * 1e3)"
    )
    done = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(one.stdout) for one in done)


def run() -> list[dict[str, Any]]:
    """A row for each model, the best of a few runs, and one for the import."""
    program = mesh()
    arrays = arrays_of(program)
    events = run_fast(arrays).events  # and compiles on a machine's first use
    rows = []
    for model in MODELS:
        ours = max(fast(arrays, model) for _ in range(RUNS))
        theirs = plain(program, events, model)
        rows.append(
            {
                "name": f"model: {model}, {program.world} ranks, {events} events",
                "value": ours,
                "unit": "events/s",
                "peer": theirs,
                "ratio": ours / theirs,
                "bar": f"at least {EVENTS_BAR:,} events/s",
                "holds": ours >= EVENTS_BAR,
            }
        )
    spent = import_ms()
    rows.append(
        {
            "name": "model: import of harness.model, without torch",
            "value": spent,
            "unit": "ms",
            "peer": IMPORT_BAR,
            "ratio": spent / IMPORT_BAR,
            "bar": f"at most {IMPORT_BAR:g} ms",
            "holds": spent <= IMPORT_BAR,
        }
    )
    return rows
