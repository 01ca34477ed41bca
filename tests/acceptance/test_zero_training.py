"""The fix's compatibility claims, on real training: losses and weights to the bit, and what the models make of it."""

import pytest

from harness.model.topology import topology
from harness.record.verdict import verdict
from harness.scenario import perform, scenario
from harness.world import pool

SUBJECT = scenario("deepspeed_zero_training")


def run(size, backend, groups, arrival, variant, **params):
    lines = []
    world = pool.get(size, backend, preload=SUBJECT.preload)
    arguments = (SUBJECT, topology(groups, size), arrival, variant, params)
    done = world.run(perform, *arguments, limit=120, sink=lines.append)
    return verdict(lines), [rank.value for rank in done.ranks]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_stage_trains_the_same_model_and_only_stage_3_gathers_parameters(stage):
    found, values = run(2, "gloo", "single", "same", "with_fix", stage=stage)
    assert (found.verdict, found.order) == ("completes", "consistent")
    assert all((value["gathers"] > 0) == (stage == 3) for value in values)
    _, third = run(2, "gloo", "single", "same", "with_fix", stage=3)
    assert [value["losses"] for value in values] == [value["losses"] for value in third]


def test_one_partition_group_has_the_same_gathers_and_values_with_and_without():
    assert run(2, "gloo", "single", "split", "with_fix") == run(2, "gloo", "single", "split", "without_fix")


@pytest.mark.parametrize("params", [{}, {"offload": "cpu"}, {"fetch": "all_reduce"}], ids=str)
def test_several_groups_hang_a_lane_without_the_fix_alone(params):
    fixed, values = run(2, "lane", "mirror", "split", "with_fix", **params)
    assert (fixed.verdict, fixed.order) == ("completes", "consistent")
    broken, _ = run(2, "lane", "mirror", "split", "without_fix", **params)
    assert (broken.verdict, broken.order) == ("deadlock", "cyclic")
    real, same = run(2, "gloo", "mirror", "split", "without_fix", **params)
    assert (real.verdict, real.order) == ("completes", "cyclic")
    assert same == values


@pytest.mark.parametrize("seed", [1, 2])
def test_training_is_bitwise_the_same_with_and_without_the_fix(seed):
    with_fix = run(2, "gloo", "mirror", "reversed", "with_fix", seed=seed)[1]
    without = run(2, "gloo", "mirror", "reversed", "without_fix", seed=seed)[1]
    assert with_fix == without
    assert with_fix[0]["losses"] != run(2, "gloo", "mirror", "reversed", "with_fix", seed=seed + 2)[1][0]["losses"]


@pytest.mark.slow
def test_hpz_over_several_groups_mixes_data_without_the_fix_on_any_backend():
    fixed, _ = run(4, "gloo", "mirror", "reversed", "with_fix", hpz=2)
    assert (fixed.verdict, fixed.order, fixed.mixed) == ("completes", "consistent", False)
    broken, _ = run(4, "gloo", "mirror", "reversed", "without_fix", hpz=2)
    assert broken.mixed
    assert broken.verdict in ("wrong_values", "silent_mix")
    assert broken.order == "cyclic"
