"""Engines that may let a rank go before the others have come: which outcomes a program has then."""

from __future__ import annotations

import pytest

from harness.model.outcomes import outcomes
from harness.model.program import Program


def _ends(model: str, *ranks: str) -> tuple[set[str], set[str]]:
    """The outcomes of ranks that execute these statements on one group: as the model has it, and with going early."""
    members = list(range(len(ranks)))
    lines = [f"program: 1\nname: early\nabout: test\nworld: {len(ranks)}\ngroups: {{A: {members}}}\nranks:"]
    for rank, statements in enumerate(ranks):
        lines += [f"  {rank}:", *(f"    - {one.strip()}" for one in statements.split(";"))] if statements else []
    program = Program.parse("\n".join(lines) + "\n")
    return set(outcomes(program, model)), set(outcomes(program, model, early=True))


@pytest.mark.parametrize("call", ["reduce A root=1", "gather A root=1", "broadcast A root=0", "scatter A root=0"])
def test_who_needs_nothing_of_the_absent_may_go(call: str) -> None:
    assert _ends("independent", call, "") == ({"missing"}, {"missing", "completes"})


@pytest.mark.parametrize("call", ["reduce A root=0", "broadcast A root=1", "all_reduce A", "recv A from=1"])
def test_who_needs_their_data_stays(call: str) -> None:
    assert _ends("independent", call, "") == ({"missing"}, {"missing"})


def test_what_comes_from_a_root_needs_nobody_else() -> None:
    """Rank 1 may go, though rank 2 never comes; by a tree that leads over rank 2 it would not."""
    call = "broadcast A root=0"
    assert _ends("independent", call, call, "") == ({"missing"}, {"missing", "completes"})


def test_who_goes_may_meet_a_deadlock_that_who_stays_does_not() -> None:
    ends = _ends("independent", "reduce A root=2; hear 1", "reduce A root=2; hear 0", "")
    assert ends == ({"missing"}, {"missing", "deadlock"})


def test_the_place_in_the_lane_goes_too() -> None:
    """Behind a reduce that its root comes to later, in another order: a deadlock, unless the reduce is done before."""
    first, second = "reduce A root=1 -> h; send A to=1; wait h", "recv A from=0; reduce A root=1"
    assert _ends("lane", first, second) == ({"deadlock"}, {"deadlock", "completes"})
