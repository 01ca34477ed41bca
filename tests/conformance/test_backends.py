"""Every backend of this package: values of every collective, and the verdict of every hazard."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness import record, testing
from harness.testing.hazards import HAZARDS
from harness.world import pool, running

BACKENDS = ("gloo", "independent", "lane", "lanes:2", "host_blocking", "first_use", "lane+buffered")


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_values(backend: str, world: int) -> None:
    assert testing.wrong_values(backend, world) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["lane", "independent"])
def test_values_of_unusual_dtypes(backend: str) -> None:
    """Under a model, what gloo does not move goes as bytes."""
    summing = ("handles", "smaller_groups", "monitored_barrier")
    moved = [name for name in testing.CASES if "reduce" not in name and name not in summing]
    run = testing.pool.get(2, backend).run(testing.run_cases, moved, ("int16", "complex64", "bool", "float64"))
    assert [outcome.value for outcome in run.ranks] == [{}, {}]


@pytest.mark.parametrize("name", list(HAZARDS))
@pytest.mark.parametrize("backend", BACKENDS[:-1])
def test_hazard(backend: str, name: str) -> None:
    hazard = HAZARDS[name]
    assert testing.objection(hazard, backend, testing.run_hazard(hazard, backend)) is None


@pytest.mark.parametrize(("backend", "order"), [("lane", "cyclic"), ("independent", "cyclic"), ("gloo", "cyclic")])
def test_asynchronous_inversion_shows_its_whole_order(backend: str, order: str) -> None:
    """All operations were issued, so that the order is known whether the run hung or not."""
    assert testing.run_hazard(HAZARDS["inversion"], backend).order == order


@pytest.mark.parametrize("model", testing.MODELS)
def test_models_are_told_apart(model: str) -> None:
    """The hazards tell each model from the others, by what is expected of them alone."""
    found = {name: testing.Verdict(hazard.expect[model], hazard.order) for name, hazard in HAZARDS.items()}
    assert testing.behaves_like(found, model) == (model,)


def _busy() -> tuple[int, float]:
    """Issue for a while; returns how often the supervisor asked for events meanwhile, and the seconds it took."""
    recorder = record.current()
    asked: list[Any] = []
    hear = recorder.on_message
    recorder.on_message = lambda message: (asked.append(message), hear(message))  # type: ignore[method-assign]
    began = time.monotonic()
    over = torch.zeros(1)
    while not over:  # as the ranks agree
        over = torch.tensor([float(time.monotonic() - began > 0.4)])
        dist.all_reduce(over)
    del recorder.on_message
    return len(asked), time.monotonic() - began


def test_a_real_engine_is_asked_for_nothing_while_it_is_busy() -> None:
    """Each question wakes a thread in the rank: asked every millisecond, ranks ran a tenth slower."""
    for asked, seconds in pool.get(2, "gloo").run(_busy).values:
        assert asked <= 1 + seconds / running.PROBE
