"""What every rank runs: train a tiny model twice, unperturbed and in the cell's order, and compare bit for bit."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from harness.errors import UsageError, WrongValuesError
from harness.model.topology import WORLD
from harness.scenario import Context

HIDDEN = 12
LAYERS = 12
BATCH = 4
#: Elements of one buffer for parameters swapped to a file.
POOL = 65536
#: The first step in which the prefetcher runs: it records the order of modules before.
TRACED = 1


def body(context: Context) -> dict[str, Any]:
    """Losses and weights must be those of a run in construction order, to the bit; WrongValuesError otherwise.

    Returns the losses, a digest of the final weights and the number of gathers that DeepSpeed issued.
    """
    reference = train(context, nullcontext)
    found = train(context, lambda: _arrival(context))
    for what in ("losses", "weights"):
        if found[what] != reference[what]:
            raise WrongValuesError(
                f"rank {context.rank}: {what} are {found[what]}, but {reference[what]} in construction order"
            )
    return found


def train(context: Context, perturbed: Callable[[], AbstractContextManager[None]]) -> dict[str, Any]:
    """Train from scratch for ``steps`` steps; the prefetcher, once its trace is whole, is ``perturbed()``."""
    import deepspeed
    import torch
    from deepspeed.runtime.zero import Init

    from scenarios import deepspeed_runtime

    deepspeed_runtime.connect()
    params = context.params
    torch.manual_seed(params["seed"])
    losses = []
    with tempfile.TemporaryDirectory(prefix="harness-swap-") as swap, counted_gathers() as gathers:
        config = configuration(context, swap)
        with deepspeed_runtime.scattered_addresses(context.arrival):
            model = _model()
        if params["stage"] == 3:
            _place(context, model)
            Init(module=model, config_dict_or_path=config)
        engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
        for step in range(params["steps"]):
            generator = torch.Generator().manual_seed(1000 * step + context.rank)
            data = torch.randn(BATCH, HIDDEN, generator=generator)
            with perturbed() if step >= TRACED else nullcontext():
                loss = engine(data.to(engine.device)).pow(2).mean()
                engine.backward(loss)
                engine.step()
            losses.append(loss.detach().item().hex())
        weights = _digest(deepspeed, model)
        engine.destroy()
    return {"losses": losses, "weights": weights, "gathers": len(gathers)}


def configuration(context: Context, swap: str) -> dict[str, Any]:
    """The DeepSpeed configuration of the cell's parameters; ``swap`` is a folder for NVMe offload."""
    params = context.params
    zero: dict[str, Any] = {"stage": params["stage"]}
    if params["stage"] == 3:
        zero |= {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 3 * HIDDEN * HIDDEN}
        zero |= {"stage3_max_reuse_distance": 0}  # released after forward, so that backward prefetches them again
        zero |= {"zero_hpz_partition_size": params["hpz"], "zero_quantized_weights": params["qwz"]}
        zero |= {
            "use_all_reduce_for_fetch_params": _one_of(params, "fetch", "all_gather", "all_reduce") == "all_reduce"
        }
    offload = _one_of(params, "offload", "none", "cpu", "nvme")
    if offload != "none":
        device = {"device": offload, **({"nvme_path": swap} if offload == "nvme" else {})}
        zero["offload_optimizer"] = device
        if params["stage"] == 3:
            # DeepSpeed's default pool is 2 GB a rank, and as much again while it is pinned; this model needs little.
            zero["offload_param"] = device | ({"buffer_size": POOL} if offload == "nvme" else {})
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
    }


@contextmanager
def counted_gathers() -> Iterator[list[int]]:
    """While entered, one entry per all-gather that ZeRO-3 issues for parameters: its elements."""
    import deepspeed.runtime.zero.partition_parameters as module

    original = module._dist_allgather_fn
    counted: list[int] = []

    def gather(input_tensor: Any, output_tensor: Any, group: Any = None) -> Any:
        counted.append(output_tensor.numel())
        return original(input_tensor, output_tensor, group)

    module._dist_allgather_fn = gather
    try:
        yield counted
    finally:
        module._dist_allgather_fn = original


def _arrival(context: Context) -> AbstractContextManager[None]:
    """The prefetcher's sets in the cell's order; ``natural`` leaves them as they are."""
    from scenarios import deepspeed_runtime

    if context.arrival == "natural":
        return nullcontext()
    return deepspeed_runtime.prefetch_order(lambda params: context.order(params, lambda p: p.harness_group))


def _model() -> Any:
    import torch

    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def _place(context: Context, model: Any) -> None:
    """Give layers in turn to this rank's groups: layer i to the i-th of them, round and round."""
    own = context.topology.of(context.rank)
    for index, layer in enumerate(module for module in model if list(module.parameters())):
        name = own[index % len(own)]
        for param in layer.parameters():
            param.harness_group = name
            if name != WORLD:
                param.ds_zero_partition_process_group = context.groups[name]


def _digest(deepspeed: Any, model: Any) -> str:
    """Of all weights, gathered one by one in construction order."""
    import torch

    digest = hashlib.sha256()
    for param in model.parameters():
        with deepspeed.zero.GatheredParameters([param]):
            digest.update(param.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _one_of(params: Any, key: str, *accepted: str) -> str:
    value = str(params[key])
    if value not in accepted:
        raise UsageError(f"parameter {key}: {value!r} is unknown; accepted: {', '.join(accepted)}")
    return value
