"""What recording and granting cost: one 1 KiB all_gather on 2 ranks, beside gloo without the harness, in one run.

Blocks of raw and recorded calls alternate in the same ranks, so that what else the machine does meets both. Medians
over all calls of a world, and of those the world with the median ratio; evidence goes to a file as in any run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.record.evidence import Evidence
from harness.world.world import World

#: Worlds, blocks of calls in each, calls in each block, and warm-up blocks that don't count.
WORLDS, BLOCKS, CALLS, WARM = 7, 24, 100, 2
#: Recording may cost so much of raw gloo, and the lane so many times of it.
BARS = {"gloo": 1.15, "lane": 3.0}


def body() -> tuple[list[float], list[float]]:
    """In each rank: seconds of every raw and of every recorded call."""
    import torch
    import torch.distributed as dist

    group = dist.group.WORLD
    out, data = torch.empty(256 * dist.get_world_size()), torch.ones(256)  # 1 KiB a rank
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for block in range(2 * (BLOCKS + WARM)):
        recorded = bool(block % 2)
        used = group if recorded else group.inner
        for _ in range(CALLS):
            start = time.perf_counter()
            dist.all_gather_single(out, data, group=used)
            if block >= 2 * WARM:
                seconds[recorded].append(time.perf_counter() - start)
    return seconds[False], seconds[True]


def measure(backend: str) -> tuple[float, float]:
    """Median microseconds of a raw and of a recorded call."""
    with tempfile.TemporaryDirectory() as folder, World(2, backend) as world:
        with Evidence(Path(folder) / "evidence.jsonl", {}, {}, {}) as evidence:
            ran = world.run(body, sink=evidence.write, limit=120.0)
    ran.check()
    raw = [value for outcome in ran.ranks for value in outcome.value[0]]
    recorded = [value for outcome in ran.ranks for value in outcome.value[1]]
    return statistics.median(raw) * 1e6, statistics.median(recorded) * 1e6


def run() -> Iterator[dict[str, Any]]:
    """One row a backend."""
    for backend, bar in BARS.items():
        measured = sorted((measure(backend) for _ in range(WORLDS)), key=lambda pair: pair[1] / pair[0])
        raw, recorded = measured[WORLDS // 2]
        ratio = recorded / raw
        yield {
            "name": f"recorder: 1 KiB all_gather on {backend}, 2 ranks",
            "value": recorded,
            "unit": "us",
            "peer": raw,
            "ratio": ratio,
            "bar": f"at most {bar:g} x raw gloo",
            "holds": ratio <= bar,
        }
