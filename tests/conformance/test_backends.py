"""Every backend of this package: values of every collective, and the verdict of every hazard."""

from __future__ import annotations

import pytest

from harness import testing
from harness.testing.hazards import HAZARDS

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
