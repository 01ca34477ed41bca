"""What a cell's parameters are, and which gathers one call of them issues."""

import pytest

from harness.errors import UsageError
from harness.model.topology import topology
from scenarios.deepspeed_zero3_group_order.slots import Slot, gathers, slots_over

DP_EDP = topology("dp_edp", 4)
SLOTS = (
    Slot("world", (3,), "float32"),
    Slot("edp0", (5,), "float32"),
    Slot("world", (2, 2), "bfloat16"),
    Slot("edp0", (1,), "float32"),
)


def test_every_group_has_every_dtype_and_size():
    slots = slots_over(DP_EDP, ("float32", "float16"))
    assert len(slots) == 3 * 2 * 4
    assert {slot.group for slot in slots[:3]} == set(DP_EDP.groups)
    for dtype in ("float32", "float16"):
        sizes = [slot.numel for slot in slots if slot.group == "edp0" and slot.dtype == dtype]
        assert [size % 4 for size in sizes] == [0, 1, 1, 1]
        assert 1 in sizes
        assert sum(slot.persist for slot in slots if slot.dtype == dtype) == 3


def test_an_unknown_dtype_lists_the_known_ones():
    with pytest.raises(UsageError, match="'int8' is unknown; accepted: bfloat16, float16, float32"):
        slots_over(DP_EDP, ("int8",))


def test_groups_go_in_the_order_first_seen_dtypes_by_name_and_parameters_by_construction():
    issued = gathers(SLOTS, (3, 0, 2, 1), DP_EDP, fixed=False)
    assert [(op.group.name, op.dtype, op.n, op.label) for op in issued] == [
        ("edp0", "float32", 3 + 1, "ds_id 1,3"),
        ("world", "bfloat16", 1, "ds_id 2"),
        ("world", "float32", 1, "ds_id 0"),
    ]


def test_the_fix_makes_any_order_the_same():
    orders = [(3, 0, 2, 1), (0, 1, 2, 3), (2, 1, 3, 0)]
    assert len({tuple(gathers(SLOTS, order, DP_EDP, fixed=True)) for order in orders}) == 1


def test_a_group_of_one_rank_needs_no_gather():
    alone = topology("single", 1)
    assert gathers((Slot("world", (3,), "float32"),), (0,), alone, fixed=False) == []
