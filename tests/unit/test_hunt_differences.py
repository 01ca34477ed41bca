"""Orders that differ between ranks are found among what two ranks have in common, and nowhere else."""

from harness.model.operation import Group, Operation
from scenarios.deepspeed_hunt.differences import differences

WORLD = Group("world", (0, 1, 2))
PAIR = Group("pair", (0, 1))


def gather(group, n=8):
    return (Operation("all_gather", group, n=n),)


def test_the_first_difference_of_each_pair_is_reported_once():
    histories = {
        0: {"main": [gather(WORLD), gather(PAIR), gather(WORLD, 4), gather(PAIR, 4)]},
        1: {"main": [gather(WORLD), gather(WORLD, 4), gather(PAIR), gather(PAIR, 4)]},
        2: {"main": [gather(WORLD), gather(WORLD, 4)]},
    }
    (found,) = differences(histories)
    assert (found.ranks, found.place) == ((0, 1), 1)
    assert str(found) == (
        "ranks 0 and 1, common collective 2: all_gather pair n=8 float32 | all_gather world n=4 float32"
    )


def test_groups_that_only_one_of_two_ranks_is_in_do_not_count():
    own = [gather(Group(f"own{rank}", (rank,))) for rank in range(2)]
    assert differences({0: {"main": [own[0], gather(PAIR)]}, 1: {"main": [gather(PAIR), own[1]]}}) == []


def test_a_rank_that_ends_early_is_a_difference():
    (found,) = differences({0: {"main": [gather(PAIR)]}, 1: {"main": [gather(PAIR), gather(PAIR)]}})
    assert str(found) == "ranks 0 and 1, common collective 2: nothing more | all_gather pair n=8 float32"


def test_point_to_point_and_shared_threads_are_left_out():
    send = (Operation("send", PAIR, peer=1),)
    recv = (Operation("recv", PAIR, peer=0),)
    assert differences({0: {"main": [send]}, 1: {"main": [recv]}}) == []
    assert differences({0: {"main": [gather(PAIR)], "saver": []}, 1: {"main": []}}) == []
