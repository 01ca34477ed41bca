"""Fully sharded training (FSDP2, ``fully_shard``) of a small transformer block stack."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    cuda = torch.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0) for _ in range(3)))
    model.to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        inputs = torch.randn(2, 8, 16, device=device)
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}, gradient norm {norm.full_tensor().item():.4f}")
        else:
            norm.full_tensor()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
