"""The bug that a set of strings makes: certain by its seeds, on plain gloo, and gone with the names in order."""

import pytest

from harness.errors import UsageError
from harness.model.topology import topology
from harness.record.verdict import verdict
from harness.scenario import perform, scenario
from harness.world import pool
from scenarios.deepspeed_moe_group_names.body import _seeds, iteration_order

SUBJECT = scenario("deepspeed_moe_group_names")
NAMES = ["ep_size_1", "ep_size_2"]


def run(size, seeds, variant, hash_seeds=()):
    lines = []
    world = pool.get(size, "gloo", preload=SUBJECT.preload, hash_seeds=hash_seeds)
    arguments = (SUBJECT, topology("single", size), "same", variant, {"seeds": seeds})
    done = world.run(perform, *arguments, limit=60, sink=lines.append)
    return verdict(lines), done


def test_the_two_seeds_order_the_names_differently():
    assert iteration_order(NAMES, 1) == NAMES
    assert iteration_order(NAMES, 2) == NAMES[::-1]


@pytest.mark.parametrize("seeds", ["1", "2"])
def test_ranks_that_agree_compute_one_norm(seeds):
    found, done = run(2, seeds, "without_fix")
    assert (found.verdict, found.mixed) == ("completes", False)
    assert done.ranks[0].value["order"] == ["dense-params", *iteration_order(NAMES, int(seeds))]


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_disagree_across_groups_compute_different_norms_silently(size):
    found, _ = run(size, "1+2", "without_fix")
    assert (found.verdict, found.mixed) == ("wrong_values", True)
    assert "the global gradient norm of a step differs between ranks" in found.explanation


def test_members_of_one_group_that_disagree_hang_on_plain_gloo():
    found, done = run(4, "1+1+2+2", "without_fix")
    assert found.verdict == "deadlock"
    assert "_average_expert_grad_norms" in found.explanation
    assert not done.timed_out


@pytest.mark.parametrize(("size", "seeds"), [(2, "1+2"), (4, "1+2"), (4, "1+1+2+2")])
def test_with_the_names_in_order_all_ranks_agree(size, seeds):
    found, done = run(size, seeds, "with_fix")
    assert (found.verdict, found.order, found.mixed) == ("completes", "consistent", False)
    assert len({str(rank.value) for rank in done.ranks}) == 1


@pytest.mark.parametrize(
    ("hash_seeds", "variant", "expected"),
    [((1, 1, 2, 2), "without_fix", "deadlock"), ((1, 1, 2, 2), "with_fix", "completes")],
)
def test_processes_with_those_hash_seeds_do_the_same(hash_seeds, variant, expected):
    found, _ = run(4, "own", variant, hash_seeds)
    assert found.verdict == expected


def test_seeds_that_are_none_are_refused():
    with pytest.raises(UsageError, match="parameter seeds: '1,2' is not understood; accepted: own, or numbers"):
        _seeds("1,2")
