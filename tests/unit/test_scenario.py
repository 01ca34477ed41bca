"""Scenarios are found by name, and say which parameters they take and what they lack."""

from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.model.arrival import ARRIVALS
from harness.model.topology import TOPOLOGIES, supports, topology
from harness.scenario import Context, Scenario, names, scenario

PLAIN = Scenario("plain", "nothing", lambda context: None, defaults={"size": 3, "dtype": "float32"})


@pytest.mark.parametrize("name", names())
def test_every_scenario_is_what_it_says(name):
    found = scenario(name)
    assert found.name == name
    assert set(found.topologies) <= set(TOPOLOGIES)
    assert set(found.arrivals) <= set(ARRIVALS)
    assert "installed" in found.variants
    assert all(any(supports(groups, world) for world in found.worlds) for groups in found.topologies)


def test_an_unknown_scenario_lists_the_known_ones():
    with pytest.raises(UsageError, match="'deadlock' is unknown; accepted: deepspeed_"):
        scenario("deadlock")


def test_parameters_are_defaults_unless_given_and_unknown_ones_are_refused():
    assert PLAIN.parameters({"size": 4}) == {"size": 4, "dtype": "float32"}
    with pytest.raises(UsageError, match="scenario plain: parameter 'shape' is unknown; accepted: size, dtype"):
        PLAIN.parameters({"shape": 4})


def test_what_is_missing_is_named():
    assert PLAIN.why_not({}) is None
    assert replace(PLAIN, requires=("torch", "no_such_package")).why_not({}) == (
        "plain needs the package no_such_package, which is not installed"
    )
    big = replace(PLAIN, lacks=lambda params: "memory" if params["size"] > 3 else None)
    assert big.why_not({}) is None
    assert big.why_not({"size": 4}) == "memory"


def test_a_context_orders_items_by_its_arrival():
    context = Context(rank=1, topology=topology("mirror", 2), arrival="reversed")
    assert context.world == 2
    assert context.order(["world", "mirror"], str) == ["mirror", "world"]
