"""Topologies: the groups they claim to have, over the worlds they claim to fit."""

from itertools import combinations

import pytest

from harness.errors import UsageError
from harness.model.topology import TOPOLOGIES, Topology, supports, topology

FITTING = [(name, world) for name in TOPOLOGIES for world in range(1, 17) if supports(name, world)]


@pytest.mark.parametrize(("name", "world"), FITTING)
def test_every_rank_is_in_a_group_and_early_ranks_are_some_of_their_group(name, world):
    made = topology(name, world)
    assert (made.name, made.world) == (name, world)
    assert {rank for ranks in made.groups.values() for rank in ranks} == set(range(world))
    for group, ranks in made.early.items():
        assert set() < set(ranks) < set(made.groups[group])


@pytest.mark.parametrize(
    ("name", "world", "groups"),
    [
        ("single", 2, [(0, 1)]),
        ("mirror", 2, [(0, 1), (0, 1)]),
        ("dp_edp", 4, [(0, 1, 2, 3), (0, 2), (1, 3)]),
        ("dp_edp", 8, [tuple(range(8)), (0, 2, 4, 6), (1, 3, 5, 7)]),
        ("dp_edp4", 8, [tuple(range(8)), (0, 4), (1, 5), (2, 6), (3, 7)]),
        ("halves", 4, [(0, 1, 2, 3), (0, 1), (2, 3)]),
        ("mesh", 4, [(0, 1), (2, 3), (0, 2), (1, 3)]),
        ("mesh", 8, [(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7)]),
        ("chain", 4, [(0, 1), (1, 2), (2, 3)]),
        ("ring3", 3, [(0, 1), (1, 2), (0, 2)]),
        ("ring3", 8, [(0, 1, 3, 6), (1, 2, 4, 7), (0, 2, 5)]),
    ],
)
def test_groups(name, world, groups):
    assert list(topology(name, world).groups.values()) == groups


@pytest.mark.parametrize("world", range(3, 10))
@pytest.mark.parametrize("name", ["ring3", "mesh", "chain"])
def test_no_two_ranks_share_two_groups(name, world):
    if not supports(name, world):
        assert name == "mesh"
        return
    for one, other in combinations(topology(name, world).groups.values(), 2):
        assert len(set(one) & set(other)) <= 1


@pytest.mark.parametrize(
    ("name", "world"), [("dp_edp", 2), ("dp_edp", 5), ("dp_edp4", 4), ("mesh", 7), ("ring3", 2), ("mirror", 1)]
)
def test_a_world_that_does_not_fit_is_refused_with_those_that_do(name, world):
    with pytest.raises(UsageError, match=f"topology {name}: .* over {world} ranks; accepted: [0-9]"):
        topology(name, world)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="'torus' is unknown; accepted: single, mirror, dp_edp"):
        topology("torus", 4)


@pytest.mark.parametrize(
    ("groups", "early", "message"),
    [
        ({"a": (1, 0)}, {}, "ascending"),
        ({"a": (0, 2)}, {}, "of 0..1"),
        ({"a": ()}, {}, "group a"),
        ({"world": (0,)}, {}, "must hold all 2 ranks"),
        ({"a": (0,)}, {"a": (1,)}, "early ranks"),
    ],
)
def test_a_topology_of_ones_own_is_checked(groups, early, message):
    with pytest.raises(UsageError, match=message):
        Topology("own", 2, groups, early)


def test_groups_of_a_rank_come_in_creation_order():
    assert topology("dp_edp", 4).of(3) == ["world", "edp1"]
