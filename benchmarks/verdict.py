"""From the last event to the verdict: how long after a world got stuck the supervisor has its proof.

8 ranks under ``lane``, each run an asynchronous inversion over two groups of all ranks. The clock starts when the
last event happens, in its rank, and stops when the supervisor has the proof; both read the machine's monotonic clock.
It stands beside its limit, and beside what a time limit on the whole run would take at the very least, one second.
"""

from __future__ import annotations

import statistics
from typing import Any

from harness.record.lines import Line
from harness.testing.hazards import gather_in_order, pair
from harness.world.world import World

RANKS, RUNS = 8, 20
#: Milliseconds: the median's limit, and the worst's.
LIMITS = {"median": 10.0, "worst": 1000.0}


def body() -> None:
    """One half of the ranks goes one way round, the other half the other."""
    import torch.distributed as dist

    groups = [("dense", None), ("expert", pair(*range(dist.get_world_size()), name="expert"))]
    gather_in_order(groups if dist.get_rank() % 2 else groups[::-1])


def measure(world: World) -> float:
    """Milliseconds from the event that made the proof possible to the proof."""
    last, proved = 0, 0

    def sink(line: Line) -> None:
        nonlocal last, proved
        if line["type"] == "certificate":
            proved = line["ns"]
        elif not proved and line["type"] in ("issue", "wait"):
            last = max(last, line["ns"])

    run = world.run(body, sink=sink)
    if run.certificate is None or run.certificate.outcome != "deadlock":
        raise RuntimeError(f"expected a proven deadlock, not {run.certificate}")
    return (proved - last) / 1e6


def run() -> list[dict[str, Any]]:
    """The median, and the worst for comparison."""
    with World(RANKS, "lane") as world:
        values = [measure(world) for _ in range(RUNS)]
    found = {"median": statistics.median(values), "worst": max(values)}
    return [
        {
            "name": f"verdict: last event to proof, {RANKS} ranks, {name} of {RUNS}",
            "value": value,
            "unit": "ms",
            "peer": LIMITS[name],
            "ratio": value / LIMITS[name],
            "bar": f"at most {LIMITS[name]:g} ms",
            "holds": value <= LIMITS[name],
        }
        for name, value in found.items()
    ]
