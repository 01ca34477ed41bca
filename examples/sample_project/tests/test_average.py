"""The sample's tests: each body runs in every rank, on every backend and world named."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from sample import average

import harness


def gradients_and_groups() -> tuple[dict[str, torch.Tensor], dict[str, dist.ProcessGroup]]:
    """A dense gradient over all ranks and an expert's over every other one; each holds its rank's number."""
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group(list(range(start, size, 2)), group_desc=f"experts{start}") for start in (0, 1)]
    groups = {"dense": dist.group.WORLD, "expert": halves[rank % 2]}
    return {name: torch.full((4,), float(rank)) for name in groups}, groups


@harness.distributed(world=[2, 4], backend=["gloo", "lane", "lanes:2"])
def test_one_order_serves_every_backend() -> None:
    gradients, groups = gradients_and_groups()
    average(gradients, groups, sorted(groups))
    assert gradients["dense"][0] == (dist.get_world_size() - 1) / 2
    assert gradients["expert"][0] == sum(range(dist.get_rank() % 2, dist.get_world_size(), 2)) / groups["expert"].size()


@pytest.mark.parametrize("half", [0, 2])
@harness.distributed(world=4, backend=["gloo", "lane"], expect={"gloo": "completes cyclic", "lane": "deadlock cyclic"})
def test_an_order_of_ones_own_hangs_on_a_lane(half: int) -> None:
    gradients, groups = gradients_and_groups()
    average(gradients, groups, sorted(groups, reverse=dist.get_rank() in (half, half + 1)))


def greet(name: str) -> str:
    dist.barrier()
    return f"{name} from {dist.get_rank()}"


@pytest.mark.harness_world(world=2, backend=["independent", "host_blocking"])
def test_ranks_return_values(harness_world: harness.WorldUnderTest) -> None:
    run = harness_world.check(greet, "hello")
    assert run.values == [f"hello from {rank}" for rank in range(harness_world.size)]
