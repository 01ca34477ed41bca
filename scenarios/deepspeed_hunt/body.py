"""What every rank runs: one kind of training, unmodified, with every layer of another size so that orders show."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from harness.errors import UsageError
from harness.scenario import Context

WIDTHS = (8, 12, 20, 16, 24, 10, 14, 8)
BATCH = 8


def body(context: Context) -> dict[str, Any]:
    """Train; returns the losses."""
    from scenarios import deepspeed_runtime

    kind = KINDS.get(str(context.params["kind"]))
    if kind is None:
        raise UsageError(f"parameter kind: {context.params['kind']!r} is unknown; accepted: {', '.join(KINDS)}")
    deepspeed_runtime.connect()
    with deepspeed_runtime.scattered_addresses("natural"):
        return {"losses": kind(context)}


def _dense(context: Context, zero: dict[str, Any], prepare: Callable[[Any, Any], Any] | None = None) -> list[float]:
    """A stack of linear layers; ``prepare(model, config)`` may convert it first."""
    import torch

    torch.manual_seed(0)
    layers: list[Any] = []
    for before, after in pairwise(WIDTHS):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers)
    config = _config(zero)
    if prepare is not None:
        prepare(model, config)
    return _train(context, model, config)


def _groups(context: Context) -> list[float]:
    """ZeRO-3 with every second layer partitioned over a second group of all ranks."""
    import torch.distributed as dist
    from deepspeed.runtime.zero import Init

    second = dist.new_group(list(range(context.world)))

    def prepare(model: Any, config: Any) -> None:
        for layer in list(model)[::4]:
            for param in layer.parameters():
                param.ds_zero_partition_process_group = second
        Init(module=model, config_dict_or_path=config)

    return _dense(context, _STAGE_3, prepare)


def _mics(context: Context) -> list[float]:
    """ZeRO-3 whose parameters are partitioned within pairs of ranks, and replicated between them."""
    from deepspeed.runtime.zero.mics import MiCS_Init

    zero = {**_STAGE_3, "mics_shard_size": 2}
    return _dense(context, zero, lambda model, config: MiCS_Init(module=model, config_dict_or_path=config))


def _experts(context: Context, stage: int, sizes: tuple[int, ...]) -> list[float]:
    """Native MoE layers, one for each expert parallel size."""
    import torch
    from deepspeed.moe.layer import MoE

    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(8, 8)
            self.moe = torch.nn.ModuleList(
                MoE(8, torch.nn.Linear(8, 8), num_experts=4, ep_size=size, use_rts=False) for size in sizes
            )

        def forward(self, x: Any) -> Any:
            x = self.dense(x)
            for layer in self.moe:
                x = x + layer(x)[0]
            return x

    return _train(context, Model(), _config({"stage": stage}))


def _pipeline(context: Context) -> list[float]:
    """Two stages, data parallel by the rest of the world, ZeRO-1."""
    import deepspeed
    import torch
    from deepspeed.pipe import PipelineModule

    torch.manual_seed(0)
    layers = [torch.nn.Linear(before, after) for before, after in pairwise(WIDTHS)]
    model = PipelineModule(
        layers=layers,
        num_stages=2,
        loss_fn=lambda out, target: (out - target).pow(2).mean(),
        partition_method="uniform",
    )
    config = {**_config({"stage": 1}), "gradient_accumulation_steps": 2}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)

    def batches() -> Any:
        step = 0
        while True:
            data = _data(context, step)
            yield data, torch.zeros(BATCH, WIDTHS[-1])
            step += 1

    feed = batches()
    return [float(engine.train_batch(feed)) for _ in range(context.params["steps"])]


def _train(context: Context, model: Any, config: dict[str, Any]) -> list[float]:
    import deepspeed

    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    losses = []
    for step in range(context.params["steps"]):
        loss = engine(_data(context, step).to(engine.device)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach().item())
    engine.destroy()
    return losses


def _data(context: Context, step: int) -> Any:
    import torch

    return torch.randn(BATCH, WIDTHS[0], generator=torch.Generator().manual_seed(1000 * step + context.rank))


def _config(zero: dict[str, Any]) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
    }


_STAGE_3 = {
    "stage": 3,
    "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 600,
    "stage3_max_reuse_distance": 0,
}
_CPU = {"device": "cpu"}

#: What can be hunted in: name to training.
KINDS: dict[str, Callable[[Context], list[float]]] = {
    "zero1": lambda context: _dense(context, {"stage": 1}),
    "zero2": lambda context: _dense(context, {"stage": 2}),
    "zero2_offload": lambda context: _dense(context, {"stage": 2, "offload_optimizer": _CPU}),
    "zero3": lambda context: _dense(context, _STAGE_3),
    "zero3_offload": lambda context: _dense(context, {**_STAGE_3, "offload_optimizer": _CPU, "offload_param": _CPU}),
    "zero3_hpz": lambda context: _dense(context, {**_STAGE_3, "zero_hpz_partition_size": 2}),
    "zero3_groups": _groups,
    "mics": _mics,
    "moe_zero1": lambda context: _experts(context, 1, (1, 2)),
    "moe_zero2": lambda context: _experts(context, 2, (1, 2)),
    "moe_one_size": lambda context: _experts(context, 2, (2, 2)),
    "pipeline": _pipeline,
}
