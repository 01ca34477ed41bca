"""The fix's cost: sorting 10 to 1000 parameters by ds_id, beside the call of all_gather_coalesced that it precedes."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from typing import Any

from harness.model.topology import topology
from harness.scenario import Context, perform
from harness.world import pool
from scenarios import deepspeed_zero3_group_order as subject
from scenarios.deepspeed_zero3_group_order.slots import Slot

COUNTS = (10, 100, 1000)
ROUNDS = 21
#: The largest share of a call that the sort may take.
BAR = 0.02


def run() -> list[dict[str, Any]]:
    """Microseconds of the sort; the peer is the whole call, issue to values, of 2 ranks over gloo."""
    world = pool.get(2, "gloo", preload=subject.scenario.preload)
    timed = replace(subject.scenario, body=_timed, defaults={"count": 0})
    rows = []
    for count in COUNTS:
        done = world.run(perform, timed, topology("mirror", 2), "same", "without_fix", {"count": count})
        sort, call = done.ranks[0].value
        rows.append(
            {
                "name": f"sort of {count} parameters by ds_id",
                "value": sort,
                "unit": "us",
                "peer": call,
                "ratio": sort / call,
                "bar": f"<= {BAR:.0%} of the call",
                "holds": sort <= BAR * call,
            }
        )
    return rows


def _timed(context: Context) -> tuple[float, float]:
    """In a rank: medians of the sort and of the call, in microseconds."""
    from scenarios import deepspeed_runtime
    from scenarios.deepspeed_zero3_group_order.body import partitioned

    deepspeed_runtime.connect()
    groups = list(context.topology.groups)
    slots = [Slot(groups[i % 2], (64, 64), "float32") for i in range(context.params["count"])]
    params = partitioned(context, slots)
    sorts, calls = [], []
    for _ in range(ROUNDS):
        shuffled = params[:]
        random.Random(0).shuffle(shuffled)
        began = time.perf_counter()
        ordered = sorted(shuffled, key=lambda p: p.ds_id)
        sorts.append(time.perf_counter() - began)
        began = time.perf_counter()
        ordered[0].all_gather_coalesced(ordered).wait()
        calls.append(time.perf_counter() - began)
        for param in params:
            param.partition()
    for param in params:
        vars(param).clear()
    return 1e6 * statistics.median(sorts), 1e6 * statistics.median(calls)
