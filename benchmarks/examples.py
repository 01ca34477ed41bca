"""Property examples a minute: drawn cases of unmodified DeepSpeed on 4 ranks, those that hang included."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import HealthCheck, Phase, given, settings

from harness.errors import WrongValuesError
from harness.scenario import perform
from scenarios.deepspeed_zero3_group_order.case import Case, outcome, task
from scenarios.deepspeed_zero3_group_order.strategies import cases

RANKS = 4
EXAMPLES = 400
PEER_EXAMPLES = 1
#: Examples a minute that the project holds itself to, on 2 cores.
BAR = 800


def run() -> list[dict[str, Any]]:
    """Examples a minute in a standing world on ``lane`` and ``gloo``, beside a fresh spawn per example over gloo."""
    drawings = draw(EXAMPLES)
    peer = spawned([case for case in drawings if case.predicted("lane", fixed=False) == {"completes"}][:PEER_EXAMPLES])
    rows = []
    for backend in ("lane", "gloo"):
        outcome(drawings[0], backend, "without_fix")  # the world's start is not an example
        began = time.perf_counter()
        verdicts = [outcome(case, backend, "without_fix").verdict for case in drawings]
        rate = 60 * len(drawings) / (time.perf_counter() - began)
        model = "lane" if backend == "lane" else "independent"
        predicted = [next(iter(case.predicted(model, fixed=False))) for case in drawings]
        if verdicts != predicted:
            raise WrongValuesError(f"examples on {backend}: a verdict is not the predicted one")
        rows.append(_row(f"examples on {backend}, {verdicts.count('deadlock')} of {len(verdicts)} hang", rate, peer))
    return rows


def draw(count: int) -> list[Case]:
    """The same ``count`` cases on every run."""
    found: list[Case] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases(worlds=(RANKS,)))
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def spawned(some: list[Case]) -> float:
    """Examples a minute with ranks spawned for each, as in a test suite that keeps no ranks."""
    began = time.perf_counter()
    for case in some:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_spawned_rank, (case, os.path.join(folder, "store")), nprocs=RANKS)
    return 60 * len(some) / (time.perf_counter() - began)


def _spawned_rank(rank: int, case: Case, path: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(path, RANKS), rank=rank, world_size=RANKS)
    perform(*task(case, "without_fix"))
    dist.destroy_process_group()


def _row(name: str, rate: float, peer: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": rate,
        "unit": "examples/min",
        "peer": peer,
        "ratio": rate / peer,
        "bar": f">= {BAR}",
        "holds": rate >= BAR,
    }
