"""What is built on torch.distributed runs unmodified, with the same numbers on gloo and on the models over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from harness.record.lines import Line
from harness.testing import pool


def data_parallel() -> Any:
    """Three steps of DistributedDataParallel: its reducer calls the group from C++ and waits for futures."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        model(torch.full((2, 4), float(dist.get_rank() + step))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.module.weight.tolist()


def fully_sharded() -> Any:
    """Two steps of FSDP2."""
    import torch
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model[0].weight.full_tensor().tolist()


def functional() -> Any:
    """Functional collectives, which reach the group from C++."""
    import torch
    import torch.distributed._functional_collectives as calls

    rank, world = dist.get_rank(), dist.group.WORLD
    return [
        calls.all_gather_tensor(torch.full((2,), float(rank)), 0, world).tolist(),
        calls.all_reduce(torch.ones(2), "sum", world).tolist(),
        calls.reduce_scatter_tensor(torch.arange(4.0), "sum", 0, world).tolist(),
        calls.broadcast(torch.full((2,), float(rank)), 1, world).tolist(),
    ]


def sharded_tensors() -> Any:
    """A device mesh of two dimensions, and tensors redistributed over one of them."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("outer", "inner"))
    placed = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh["outer"], [Shard(0)])
    return placed.redistribute(mesh["outer"], [Replicate()]).to_local().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("body", [data_parallel, fully_sharded, functional, sharded_tensors], ids=lambda b: b.__name__)
def test_same_values_on_every_backend(body: Callable[[], Any]) -> None:
    found = {}
    for backend in ("gloo", "lane", "host_blocking"):
        evidence: list[Line] = []
        found[backend] = pool.get(2, backend).run(body, sink=evidence.append).values
        assert [line for line in evidence if line["type"] == "issue"], "nothing of it was recorded"
    assert found["gloo"] == found["lane"] == found["host_blocking"]
    assert found["gloo"][0] is not None
