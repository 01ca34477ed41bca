"""The order verdict, its shortest cycle, and the common order that would mend it."""

from __future__ import annotations

from harness.model import explain
from harness.model.operation import Group, Operation
from harness.model.order import Histories, assignments, common_order, order_of

A, B, C = Group("A", (0, 1)), Group("B", (1, 2)), Group("C", (0, 2))


def calls(*groups: Group) -> list[tuple[Operation, ...]]:
    return [(Operation("all_reduce", group),) for group in groups]


def test_a_ring_of_three_is_cyclic_though_no_two_ranks_share_two_groups() -> None:
    histories: Histories = {0: {"main": calls(C, A)}, 1: {"main": calls(A, B)}, 2: {"main": calls(B, C)}}
    verdict = order_of(histories)
    assert verdict.verdict == "cyclic"
    assert sorted(link.rank for link in verdict.cycle) == [0, 1, 2]


def test_the_cycle_is_the_shortest_however_much_was_issued_between() -> None:
    world, extra = Group("W", (0, 1)), Group("X", (0, 1))
    long_way: Histories = {
        0: {"main": calls(A, *[world] * 50, extra)},
        1: {"main": calls(extra, *[world] * 50, A)},
    }
    assert len(order_of(long_way).cycle) == 2


def test_calls_of_one_batch_have_no_order() -> None:
    batch = [(Operation("recv", A, peer=1), Operation("send", A, peer=1))]
    other = [(Operation("recv", A, peer=0), Operation("send", A, peer=0))]
    assert order_of({0: {"main": batch}, 1: {"main": other}}).verdict == "consistent"
    apart: Histories = {
        0: {"main": [(op,) for op in batch[0]]},
        1: {"main": [(op,) for op in other[0]]},
    }
    assert order_of(apart).verdict == "cyclic"


def test_threads_that_share_a_group_are_cyclic_if_any_interleaving_is() -> None:
    two, three = Group("D", (0, 1)), Group("E", (0, 1))
    histories: Histories = {
        0: {"main": calls(two, three), "saver": calls(three, two)},
        1: {"main": calls(two, three, two, three)},
    }
    assert len(list(assignments(histories))) > 1
    assert order_of(histories).verdict == "cyclic"


def test_a_common_order_keeps_each_group_in_order() -> None:
    two = Group("D", (0, 1))
    histories: Histories = {0: {"main": calls(A, two, A)}, 1: {"main": calls(two, A, A)}}
    keys = next(assignments(histories))
    found = common_order(keys)
    assert found is not None
    assert [str(key) for key in found] == ["A #0", "D #0", "A #1"]


def test_waits_between_calls_can_rule_a_common_order_out() -> None:
    two = Group("D", (0, 1))
    histories: Histories = {0: {"main": calls(A, two)}, 1: {"main": calls(two, A)}}
    keys = next(assignments(histories))
    assert common_order(keys, {(0, "main"): [0, 1], (1, "main"): [0, 1]}) is None
    assert common_order(keys, {(0, "main"): [0, 0], (1, "main"): [0, 1]}) is not None


def test_the_first_difference_is_marked_once_and_in_the_right_row() -> None:
    two = Group("D", (0, 1))
    histories: Histories = {0: {"main": calls(A, A, two, A)}, 1: {"main": calls(A, A, A, two)}}
    text = explain.side_by_side(histories, 0, 1)
    (marked,) = [line for line in text.splitlines() if "≠" in line]
    assert marked.split()[:3] == ["2", "all_reduce", "D"]


def test_who_never_came_is_shown_as_nothing_more() -> None:
    histories: Histories = {0: {"main": calls(A)}, 1: {"main": []}}
    assert "(nothing more)" in explain.side_by_side(histories, 0, 1)
