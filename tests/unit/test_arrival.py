"""Arrivals: permutations, the same in every process where they promise it, and different where they must differ."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.model.arrival import arrival
from harness.model.topology import topology

DP_EDP = topology("dp_edp", 4)
ITEMS = ["world:a", "edp0:b", "edp1:c", "world:d", "edp0:e", "edp1:f"]


def group_of(item: str) -> str:
    return item.partition(":")[0]


def ordered(name: str, rank: int) -> list[str]:
    return arrival(name)(ITEMS, rank, DP_EDP, group_of)


@given(st.sampled_from(["same", "reversed", "shuffled:0", "shuffled:91", "split", "natural"]), st.integers(0, 3))
def test_nothing_is_lost_or_added(name, rank):
    assert sorted(ordered(name, rank)) == sorted(ITEMS)


def test_same_changes_nothing_and_reversed_only_odd_ranks():
    for rank in range(4):
        assert ordered("same", rank) == ITEMS
        assert ordered("reversed", rank) == (ITEMS[::-1] if rank % 2 else ITEMS)


def test_split_sets_the_two_members_of_a_small_group_against_each_other():
    small = [item for item in ITEMS if not item.startswith("world")]
    assert ordered("split", 0) == ["edp0:b", "edp0:e", *(i for i in ITEMS if not i.startswith("edp0"))]
    assert ordered("split", 2) == ITEMS
    assert [i for i in ordered("split", 1) if i in small][:2] == ["edp1:c", "edp1:f"]
    assert ordered("split", 3) == ITEMS


def test_shuffles_differ_between_ranks_and_between_seeds():
    assert len({tuple(ordered("shuffled:7", rank)) for rank in range(4)}) > 1
    assert len({tuple(ordered(f"shuffled:{seed}", 1)) for seed in range(5)}) > 1


def test_a_shuffle_is_the_same_in_another_process():
    code = (
        "from harness.model.arrival import arrival; from harness.model.topology import topology;"
        f"print(arrival('shuffled:7')({ITEMS!r}, 2, topology('dp_edp', 4), str))"
    )
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert out.stdout.strip() == repr(ordered("shuffled:7", 2))


def test_natural_is_the_order_of_a_set():
    assert ordered("natural", 0) == list(set(ITEMS))


@pytest.mark.parametrize("text", ["sorted", "same:1", "shuffled:x", "shuffled:-1", ""])
def test_an_unknown_arrival_lists_the_known_ones(text):
    with pytest.raises(UsageError, match="accepted: "):
        arrival(text)
