"""Hypothesis strategies for drawn cases; they shrink towards two ranks, two groups, two parameters of one element."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.model.topology import WORLD

from .case import Case
from .slots import DTYPES, Slot

SHAPES = ((1,), (2,), (3,), (8,), (5, 3), (4, 4), (17,))


@st.composite
def cases(draw: st.DrawFn, worlds: tuple[int, ...] = (2, 3, 4), parameters: int = 6) -> Case:
    """A world, up to three groups beside the world's, up to ``parameters`` parameters, and each rank's order."""
    world = draw(st.sampled_from(worlds))
    everyone = tuple(range(world))
    some = st.sets(st.sampled_from(everyone), min_size=1).map(lambda ranks: tuple(sorted(ranks)))
    drawn = draw(st.lists(st.just(everyone) | some, max_size=3))
    groups = {f"g{i}": ranks for i, ranks in enumerate(drawn)}
    slot = st.builds(
        Slot, st.sampled_from((WORLD, *groups)), st.sampled_from(SHAPES), st.sampled_from(DTYPES[::-1]), st.just(False)
    )
    slots = tuple(draw(st.lists(slot, min_size=1, max_size=parameters)))
    orders = []
    for rank in range(world):
        own = [i for i, s in enumerate(slots) if s.group == WORLD or rank in groups[s.group]]
        orders.append(tuple(draw(st.permutations(own))) if own else ())
    return Case(world, groups, slots, tuple(orders))
