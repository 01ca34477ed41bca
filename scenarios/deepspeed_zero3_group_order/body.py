"""What every rank runs: partition parameters over several groups, gather them as the prefetcher does, compare bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import WrongValuesError
from harness.model.topology import WORLD
from harness.scenario import Context

from .slots import Slot, slots_over

Order = Callable[[Sequence[Any]], list[Any]]


def body(context: Context) -> dict[str, Any]:
    """The cell's slots, each round in the order that its arrival gives this rank."""
    slots = slots_over(context.topology, context.params["dtypes"].split("+"))
    return gather_rounds(
        context, slots, lambda params: context.order(params, lambda p: slots[p.ds_id].group), context.params["rounds"]
    )


def gather_rounds(context: Context, slots: Sequence[Slot], order: Order, rounds: int) -> dict[str, Any]:
    """Gather, compare and release ``rounds`` times; returns how many parameters, and a digest of their bits.

    ``order`` permutes the parameters of a call. Raises WrongValuesError at the first parameter that differs.
    """
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    from scenarios import deepspeed_runtime

    deepspeed_runtime.connect()
    with deepspeed_runtime.scattered_addresses(context.arrival):
        params = partitioned(context, slots)
    digest = hashlib.sha256()
    try:
        for _ in range(rounds):
            wanted = order([p for p in params if p.ds_status == ZeroParamStatus.NOT_AVAILABLE])
            if wanted:  # as PartitionedParameterCoordinator.__all_gather_params_ calls it, waits, and releases
                wanted[0].all_gather_coalesced(wanted, quantize=False).wait()
            for param in params:
                compare(context, slots[param.ds_id], param, digest)
            for param in params:
                if not param.ds_persist:
                    param.partition()
        return {"parameters": len(params), "values": digest.hexdigest()[:16]}
    finally:
        for param in params:
            vars(param).clear()  # its closures hold it in a cycle, which a standing rank would pile up


def partitioned(context: Context, slots: Sequence[Slot]) -> list[Any]:
    """This rank's parameters, in construction order, partitioned by DeepSpeed over their slots' groups."""
    import torch
    from deepspeed.runtime.zero.partition_parameters import Init

    params = []
    for index, slot in enumerate(slots):
        if slot.group not in context.groups:
            continue
        param = torch.nn.Parameter(_values(index, slot, context.rank))
        if slot.group != WORLD:  # DeepSpeed's own choice, where nothing chooses
            param.ds_zero_partition_process_group = context.groups[slot.group]
        holder = torch.nn.Module()
        holder.weight = param
        # ds_id counts the parameters of the whole model, those that this rank lacks as well.
        Init.param_id = index
        Init.apply_param_persistence = slot.persist
        Init(module=holder, dtype=torch.float32)
        params.append(param)
    return params


def _values(index: int, slot: Slot, rank: int) -> Any:
    """What ``rank`` puts into a slot before partitioning, which keeps the first member's: different for each pair."""
    import torch

    generator = torch.Generator().manual_seed(1000 * index + rank)
    return torch.randn(slot.shape, generator=generator).to(getattr(torch, slot.dtype))


def compare(context: Context, slot: Slot, param: Any, digest: Any) -> None:
    """Every bit as the group's first rank made it, or WrongValuesError saying where it differs."""
    import torch

    expected = _values(param.ds_id, slot, context.topology.groups[slot.group][0])
    found, wanted = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (param.data.cpu(), expected))
    if param.dtype != expected.dtype or param.shape != expected.shape or not torch.equal(found, wanted):
        raise WrongValuesError(
            f"rank {context.rank}: parameter ds_id {param.ds_id} of group {slot.group} {slot.dtype}{list(slot.shape)} "
            f"was gathered as {param.dtype}{list(param.shape)} {param.data.flatten()[:4].tolist()}..., "
            f"expected {expected.flatten()[:4].tolist()}..."
        )
    digest.update(found.numpy().tobytes())
