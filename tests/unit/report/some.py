"""Results to report on."""

from __future__ import annotations

from harness.matrix.cell import make_cell
from harness.matrix.plan import Expectation
from harness.matrix.result import SKIPPED, CellResult

DEADLOCK = Expectation(("deadlock cyclic",), 12, "ranks wait for each other")
COMPLETES = Expectation(("completes consistent",), 15)


def result(backend: str, variant: str, verdict: str, order: str, expectation: Expectation, **more: str) -> CellResult:
    cell = make_cell(
        {}, scenario="zero3", backend=backend, world=4, topology="dp_edp", arrival="split", variant=variant
    )
    return CellResult(cell, verdict, order, 0.25, expectation, evidence=f"{cell.id}.jsonl", **more)


AS_EXPECTED = result("lane", "installed", "deadlock", "cyclic", DEADLOCK, reason="rank 0 waits for rank 1")
UNEXPECTED = result("lane", "with_fix", "deadlock", "cyclic", COMPLETES, reason="rank 0 waits\x1b for <rank 1> & 2")
SKIP = result("nccl", "installed", SKIPPED, "unknown", COMPLETES, reason="no CUDA device", may_skip="needs a GPU")
UNFORESEEN = result("nccl", "with_fix", SKIPPED, "unknown", COMPLETES, reason="no CUDA device")
ALL = [AS_EXPECTED, UNEXPECTED, SKIP, UNFORESEEN]
