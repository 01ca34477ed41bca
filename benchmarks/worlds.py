"""Starting worlds and running tests on them, beside DeepSpeed's and torch's own test launchers, in one run.

The body is the same everywhere: a small all-gather. The peers that spawn ranks for each test are compared with a
fresh world for each test; the one that keeps its ranks for a class with a kept world, over a class of `KEPT` tests with
the start of the ranks, and, without a bar, by the median test once its ranks stand.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks._peers import measure
from benchmarks._peers.body import gather, ready
from harness.world.world import World

#: Ranks, and the seconds in which so many are to stand ready.
START_BARS = {2: 0.15, 4: 0.25, 8: 0.5}
STARTS, TESTS, KEPT = 9, 2, 20
#: A fresh world is so many times faster than spawned ranks at 4 ranks, a kept one so many than kept ones at 4 and 8.
SPAWN_BAR, KEPT_BAR = 20.0, 5.0


def run() -> Iterator[dict[str, Any]]:
    """Rows for each number of ranks: start, a test on a fresh world, a test on a kept one, memory."""
    for ranks, bar in START_BARS.items():
        starts, tests, memory = _fresh(ranks)
        start = statistics.median(starts)
        yield _row(f"start, {ranks} ranks, DeepSpeed-ready", start, "s", None, f"<= {bar} s", start <= bar)
        fresh = statistics.median(tests)
        kept = _kept(ranks)
        for peer in ("distributed_test", "multi_process"):
            found = _measured(peer, ranks, TESTS)
            value = statistics.median(found.seconds) if found else None
            wanted = SPAWN_BAR if ranks == 4 else None
            yield _compared(f"test on a fresh world, {ranks} ranks, / {peer}", fresh, "s", value, wanted, _inverse)
        found = _measured("continuous", ranks, KEPT)
        wanted = KEPT_BAR if ranks in (4, 8) else None
        theirs = found.seconds if found else []
        name = f"a class of {KEPT} tests, {ranks} ranks, / continuous"
        yield _compared(name, _rate(kept), "tests/min", _rate(theirs) if theirs else None, wanted, _plain)
        name = f"tests on standing ranks, {ranks} ranks, / continuous"
        standing = 60 / statistics.median(theirs[1:]) if theirs else None
        yield _compared(name, 60 / statistics.median(kept[1:]), "tests/min", standing, None, _plain)
        own = found.mebibytes if found else None
        yield _compared(f"memory of a rank, {ranks} ranks, / continuous", memory, "MiB", own, 1.0, _inverse)


def _fresh(ranks: int) -> tuple[list[float], list[float], float]:
    """Seconds to stand ready, seconds of a whole test with its world's end, and a rank's own mebibytes."""
    World(ranks, "lane").close()  # the server's start is not a world's
    starts, tests, memory = [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        with World(ranks, "lane") as world:
            memory += world.run(ready).values
            starts.append(time.perf_counter() - began)
        tests.append(time.perf_counter() - began)
    return starts, tests, statistics.median(memory)


def _kept(ranks: int) -> list[float]:
    """Seconds of each test on a world that stays; the first starts it."""
    began = time.perf_counter()
    seconds = []
    with World(ranks, "lane") as world:
        for _ in range(KEPT):
            world.run(gather).check()
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
    return seconds


def _measured(peer: str, ranks: int, tests: int) -> measure.Measured | None:
    reason = measure.why_not(peer)
    if reason is not None:
        print(f"{peer} is not measured: {reason}", file=sys.stderr)
        return None
    return measure.measure(peer, ranks, tests)


def _rate(seconds: list[float]) -> float:
    """Tests a minute."""
    return 60 * len(seconds) / sum(seconds)


def _plain(value: float, peer: float) -> float:
    return value / peer


def _inverse(value: float, peer: float) -> float:
    return peer / value


def _compared(
    name: str, value: float, unit: str, peer: float | None, bar: float | None, ratio: Callable[[float, float], float]
) -> dict[str, Any]:
    """A row whose ratio says how many times better than the peer; without the peer its bar cannot hold."""
    found = None if peer is None else ratio(value, peer)
    holds = bar is None or (found is not None and found >= bar)
    return _row(name, value, unit, peer, "-" if bar is None else f">= {bar:g} times better", holds, found)


def _row(
    name: str, value: float, unit: str, peer: float | None, bar: str, holds: bool, ratio: float | None = None
) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "peer": peer, "ratio": ratio, "bar": bar, "holds": holds}
