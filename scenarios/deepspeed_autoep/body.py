"""What every rank runs: Hugging Face weights into AutoEP and ZeRO-3, a few steps, a rollout; compared bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from harness.errors import WrongValuesError
from harness.model.topology import WORLD
from harness.record import current
from harness.scenario import Context

from . import models

TOKENS = 16
GENERATED = 4


def body(context: Context) -> dict[str, Any]:
    """Train; with ``rollout``, compare weights before the first step and after the last, and generate.

    Returns the losses and the generated tokens. Raises WrongValuesError where weights differ by a bit.
    """
    import deepspeed
    import torch

    from scenarios import deepspeed_runtime

    deepspeed_runtime.connect()
    params = context.params
    with deepspeed_runtime.scattered_addresses(context.arrival):  # AutoEP makes its experts anew in initialize
        model = models.build(params["model"])
        original = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=list(model.parameters()), config=configuration(context, params["model"])
        )
    current().note("parameters", {param.ds_id: name for name, param in engine.module.named_parameters()})
    if params["rollout"]:
        _same(context, "before the first step", models.exported(engine), original)
    losses = []
    for step in range(params["steps"]):
        generator = torch.Generator().manual_seed(1000 * step + context.rank)
        tokens = torch.randint(3, models.VOCABULARY, (1, TOKENS), generator=generator).to(engine.device)
        current().note("step", step)
        with _arrival(context), deepspeed_runtime.noted_modules(engine.module):
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        losses.append(loss.detach().item())
    found: dict[str, Any] = {"losses": losses}
    if params["rollout"]:
        found["generated"] = _rollout(context, engine)
    engine.destroy()
    return found


def configuration(context: Context, model: str) -> dict[str, Any]:
    """AutoEP with the expert parallel size of the topology, ZeRO-3, nothing persistent."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        # With the default threshold every dense parameter of so small a model persists, and no call mixes groups.
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "expert_parallel": {
            "enabled": True,
            "autoep_size": len(context.topology.groups) - 1,
            "preset_model": model,
            "use_grouped_mm": False,
        },
    }


def _rollout(context: Context, engine: Any) -> list[int]:
    """Load the trained weights into a fresh model, check each rank's partitions against them, and generate."""
    import torch

    weights = models.exported(engine)
    fresh = models.build(context.params["model"]).eval()
    fresh.load_state_dict(weights)
    _same(context, "in the rollout", fresh.state_dict(), weights)
    _partitions_are_part_of(context, engine, weights)
    prompt = torch.arange(3, 3 + TOKENS)[None]
    with torch.no_grad():
        tokens = fresh.generate(prompt, max_new_tokens=GENERATED, do_sample=False, pad_token_id=0)
    return [int(token) for token in tokens[0, TOKENS:]]


def _partitions_are_part_of(context: Context, engine: Any, weights: Mapping[str, Any]) -> None:
    """What this rank's ZeRO partition of each dense parameter holds is the same part of the whole, bit for bit."""
    import torch

    for name, param in engine.module.named_parameters():
        whole = weights.get(name.replace(".router.gate.", ".gate."))
        if whole is None:
            continue  # an expert's, exported in another shape
        size = param.ds_tensor.ds_numel
        start = size * param.ds_zero_partition_rank
        expected = whole.flatten()[start : start + size]
        if not torch.equal(param.ds_tensor[: expected.numel()].cpu(), expected):
            raise WrongValuesError(f"rank {context.rank}: the training partition of {name} is not what was rolled out")


def _same(context: Context, when: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Equal names and bits, or WrongValuesError."""
    import torch

    if set(found) != set(expected):
        raise WrongValuesError(f"rank {context.rank}: {when} the names differ: {sorted(set(found) ^ set(expected))}")
    for name, tensor in expected.items():
        if found[name].dtype != tensor.dtype or not torch.equal(found[name], tensor):
            raise WrongValuesError(f"rank {context.rank}: {when} the weight {name} differs")


def _arrival(context: Context) -> AbstractContextManager[None]:
    """The prefetcher's sets in the cell's order; ``natural`` leaves them as they are."""
    from scenarios import deepspeed_runtime

    if context.arrival == "natural":
        return nullcontext()
    return deepspeed_runtime.prefetch_order(lambda params: context.order(params, lambda p: _group_of(context, p)))


def _group_of(context: Context, param: Any) -> str:
    """The topology's group with the ranks of the parameter's partition group."""
    expert = getattr(param, "ds_zero_placement_family", None) == "autoep_expert"
    return context.topology.of(context.rank)[1] if expert else WORLD
