"""ZeRO-3 training as DeepSpeed's launcher starts it: ``deepspeed --num_gpus 4 deepspeed_zero3.py``."""

from __future__ import annotations

import argparse

import deepspeed
import torch
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    engine, *_ = deepspeed.initialize(model=model, config=CONFIG)
    torch.manual_seed(0)
    for step in range(options.steps):
        inputs = torch.randn(2, 8, device=engine.device)
        loss = (engine(inputs) - inputs).square().mean()
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
