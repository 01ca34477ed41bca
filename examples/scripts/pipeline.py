"""A pipeline of one stage a rank, by torch's own 1F1B schedule (point-to-point batches between neighbours)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(rank)
    part = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device)
    stage = PipelineStage(part, rank, size, device)
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    torch.manual_seed(0)
    inputs, targets = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(inputs)
    elif rank == size - 1:
        schedule.step(target=targets, losses=losses)
        print("losses " + " ".join(f"{loss.item():.4f}" for loss in losses))
    else:
        schedule.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
