"""A 2-D device mesh: tensor parallel within a row, data parallel across, and functional collectives on both."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in range(2):
        torch.manual_seed(step * 10 + mesh.get_local_rank("data"))
        loss = model(torch.randn(4, 8, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = funcol.all_reduce(loss.detach(), "avg" if device == "cuda" else "sum", mesh["data"])
        parts = funcol.all_gather_tensor(mean.reshape(1), 0, mesh["tensor"])
        assert torch.allclose(parts[0], parts[1]), parts
        if dist.get_rank() == 0:
            print(f"step {step}: loss {float(mean):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
