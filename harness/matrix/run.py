"""Running one cell: ranks, scenario, evidence, verdict."""

from __future__ import annotations

import time
from pathlib import Path

from harness import backends
from harness import scenario as scenarios
from harness.matrix.machine import hardware, versions
from harness.matrix.plan import Planned
from harness.matrix.result import SKIPPED, CellResult
from harness.model.topology import topology
from harness.record.evidence import Evidence, read
from harness.record.verdict import verdict
from harness.world import pool


def why_not(planned: Planned) -> str | None:
    """Why the cell can't run on this machine, or None."""
    cell = planned.cell
    launched = pool.capacity()
    if launched is not None and cell.world > launched:
        return f"a world of {cell.world} ranks: the launcher started {launched} processes"
    lacks = scenarios.scenario(cell.scenario).why_not(dict(cell.params))
    backend = backends.get(cell.backend)
    lacks = lacks or backend.available()
    devices = getattr(backend, "most_ranks", None)  # accelerators have it: a device a rank
    if lacks is None and launched is None and devices is not None and cell.world > devices():
        return f"{cell.backend}: a world of {cell.world} ranks needs as many devices; {devices()} are here"
    return lacks


def run_cell(planned: Planned, folder: Path) -> CellResult:
    """Run the cell in a standing world; its evidence goes to a file of its own in ``folder``.

    The verdict is computed from that file alone. A cell that can't run here has the verdict ``skipped`` and a reason.
    Raises what starting a world raises; whatever happens to ranks is a verdict.
    """
    cell = planned.cell
    path = folder / f"{cell.id}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with Evidence(path, cell.to_json(), versions(), hardware()) as evidence:
        reason = why_not(planned)
        if reason is not None:
            result = CellResult(cell, SKIPPED, "unknown", 0.0, planned.expectation, reason, planned.may_skip, path.name)
            evidence.write({"type": "result", **result.to_json()})
            return result
        scenario = scenarios.scenario(cell.scenario)
        groups = topology(cell.topology, cell.world)
        world = pool.get(cell.world, cell.backend, preload=scenario.preload)
        started = time.perf_counter()
        world.run(
            scenarios.perform,
            scenario,
            groups,
            cell.arrival,
            cell.variant,
            dict(cell.params),
            limit=planned.limit,
            sink=evidence.write,
        )
        seconds = time.perf_counter() - started
        found = verdict(read(path))
        result = CellResult(
            cell,
            found.verdict,
            found.order,
            seconds,
            planned.expectation,
            found.explanation,
            planned.may_skip,
            path.name,
        )
        evidence.write({"type": "result", **result.to_json()})
    return result
