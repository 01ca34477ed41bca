"""The hunt finds both known bugs with nothing forced but hash seeds and addresses, and nothing where there is none."""

import pytest

from scenarios.deepspeed_hunt.__main__ import hunt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("kind", ["zero2", "zero3", "moe_one_size"])
def test_training_with_one_order_shows_none(kind):
    summary, reported = hunt(kind)
    assert summary.startswith("completes, order consistent")
    assert reported == []


def test_expert_groups_named_by_a_set_are_found():
    summary, reported = hunt("moe_zero2")
    assert summary.startswith("deadlock")
    assert any(line.startswith("ranks 0 and 2") and "all_reduce" in line for line in reported)


def test_parameters_of_two_groups_prefetched_from_a_set_are_found():
    # Addresses are drawn anew in each run: all four ranks agree in well under one run of two.
    assert any("all_gather" in line for _ in range(12) for line in hunt("zero3_groups")[1])
