"""What every rank runs: one kind of call, with the parameters in the cell's order; values compared bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import UsageError, WrongValuesError
from harness.scenario import Context
from scenarios.deepspeed_zero3_group_order.body import compare, partitioned
from scenarios.deepspeed_zero3_group_order.slots import slots_over

Check = Callable[[Sequence[Any]], None]


def body(context: Context) -> dict[str, Any]:
    """Make the call; returns how many parameters it had. Raises WrongValuesError where a value or a state is wrong."""
    from scenarios import deepspeed_runtime

    call = _CALLS.get(str(context.params["call"]))
    if call is None:
        accepted = ", ".join(_CALLS)
        raise UsageError(f"parameter call: {context.params['call']!r} is unknown; accepted: {accepted}")
    deepspeed_runtime.connect()
    slots = tuple(slot._replace(persist=False) for slot in slots_over(context.topology, ("float32",)))
    with deepspeed_runtime.scattered_addresses(context.arrival):
        params = partitioned(context, slots)

    def check(gathered: Sequence[Any]) -> None:
        for param in gathered:
            compare(context, slots[param.ds_id], param, hashlib.sha256())

    try:
        call(context.order(params, lambda p: slots[p.ds_id].group), check)
        return {"parameters": len(params)}
    finally:
        for param in params:
            vars(param).clear()  # its closures hold it in a cycle, which a standing rank would pile up


def gathered_parameters(params: list[Any], check: Check) -> None:
    """The public context manager. It sorts what it is given, so the order should not matter."""
    import deepspeed

    with deepspeed.zero.GatheredParameters(params):
        check(params)


def all_gather(params: list[Any], check: Check) -> None:
    """``all_gather`` of a list: group by group in the order given, the host waiting after each group."""
    params[0].all_gather(param_list=params)
    check(params)
    params[0].partition(param_list=params)


def all_gather_async(params: list[Any], check: Check) -> None:
    """The same, asynchronously: parameter by parameter in the order given."""
    handles = params[0].all_gather(param_list=params, async_op=True)
    for handle in handles:
        handle.wait()
    del handles  # the caller of this path sets the data; only that it comes to an end is looked at


def wait_twice(params: list[Any], check: Check) -> None:
    """A handle waited for again after its parameters were released must leave them released (DeepSpeed 8486)."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    first = min(params, key=lambda p: p.ds_id)
    for some in ([first], params):  # alone and coalesced: two kinds of handle
        handle = some[0].all_gather_coalesced(some)
        handle.wait()
        check(some)
        for param in some:
            param.partition()
        handle.wait()
        for param in some:
            if param.ds_status != ZeroParamStatus.NOT_AVAILABLE:
                raise WrongValuesError(
                    f"parameter ds_id {param.ds_id} was released, yet waiting again for its old handle made it "
                    f"{param.ds_status.name} with {param.numel()} of {param.ds_numel} elements"
                )


_CALLS: dict[str, Callable[[list[Any], Check], None]] = {
    call.__name__: call for call in (gathered_parameters, all_gather, all_gather_async, wait_twice)
}
