"""torch's own debug wrapper: what it reports of each hazard, and what it misses. The record knows more, beside it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from harness import testing
from harness.record.lines import Line
from harness.testing.hazards import HAZARDS
from harness.world import pool

pytestmark = pytest.mark.slow


def _run(name: str, world: int = 2) -> tuple[testing.Verdict, str]:
    """The verdict, and what torch told rank 0."""
    lines: list[Line] = []
    run = pool.get(world, "gloo-detail").run(HAZARDS[name].body, sink=lines.append, limit=60.0)
    error = run.ranks[0].error
    return testing.verdict(lines), error.message if error else ""


@pytest.mark.nightly
def test_an_inversion_is_reported_like_a_call_that_never_comes() -> None:
    """gloo itself completes it. The report names rank and time; no group, no order."""
    _, inverted = _run("inversion")
    _, missing = _run("missing_part")
    assert "failed to pass monitoredBarrier in 5000 ms" in inverted
    assert "dense" not in inverted
    assert "expert" not in inverted
    assert inverted.replace("Ranks 1", "") == missing.replace("Ranks 1", "")


def test_a_mismatch_is_named_at_once() -> None:
    found, told = _run("mismatched_kind")
    assert "Detected mismatch between collectives on ranks" in told
    assert "ALLREDUCE" in told
    assert found.verdict in ("crashed", "mismatch")


def test_mixed_data_pass_unnoticed_but_for_the_record() -> None:
    found, told = _run("mixed_labels")
    assert told == ""
    assert found.verdict == "silent_mix"


def test_point_to_point_is_not_wrapped() -> None:
    """Receives posted on both sides before the sends: were those checked as collectives are, they would block."""
    assert _run("crossed_receives")[0].verdict == "completes"


def _after_a_monitored_barrier() -> float:
    dist.monitored_barrier()
    data = torch.ones(2)
    dist.all_reduce(data)
    return float(data[0])


def test_a_monitored_barrier_makes_the_next_collective_fail_on_three_ranks() -> None:
    """A false report of torch 2.13: the barrier counts as more operations on rank 0 than on the others."""
    assert pool.get(2, "gloo-detail").run(_after_a_monitored_barrier).values == [2.0, 2.0]
    run = pool.get(3, "gloo-detail").run(_after_a_monitored_barrier)
    if run.ok:
        pytest.skip(f"torch {torch.__version__} has this mended")
    assert all("Detected mismatch" in rank.error.message for rank in run.ranks if rank.error is not None)
