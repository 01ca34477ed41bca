"""DeepSpeed ZeRO-3: gather the parameters of several process groups in ``ds_id`` order, or in the order given.

The closure ``all_gather_coalesced`` that ``Init._convert_to_deepspeed_param`` hangs on each parameter buckets the
parameters it is given by process group, in their order, and gathers group by group (0.19.3 to 0.19.8; up to 0.19.2
parameters had one group). The fix sorts by ``ds_id`` first. Both behaviours are had on any release by wrapping that
closure: ``with_fix`` hands it a sorted list; ``without_fix`` hands it one group at a time, in the order given, which
a sort inside can't undo.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.errors import VariantError
from harness.record.recorder import label
from harness.variants.base import Fix, Variant

MODULE = "deepspeed.runtime.zero.partition_parameters"
#: The attribute by which a parameter chooses its partition group; it came with the bucketing, in 0.19.3.
GROUP_ATTRIBUTE = "ds_zero_partition_process_group"

Gather = Callable[..., Any]


def sorted_first(init: Any, gather: Gather, module: Any) -> Gather:
    """As with the fix: order by construction, then bucket."""

    @functools.wraps(gather)
    def all_gather_coalesced(params: Iterable[Any], safe_mode: bool = False, quantize: bool = False) -> Any:
        ordered = sorted(params, key=lambda p: p.ds_id)
        with _labelled(module, ordered):
            return gather(ordered, safe_mode=safe_mode, quantize=quantize)

    return all_gather_coalesced


def group_by_group(init: Any, gather: Gather, module: Any) -> Gather:
    """As without the fix: bucket in the order given, then gather bucket by bucket."""

    @functools.wraps(gather)
    def all_gather_coalesced(params: Iterable[Any], safe_mode: bool = False, quantize: bool = False) -> Any:
        given = list(params)
        buckets: dict[int, list[Any]] = {}
        for param in given:
            buckets.setdefault(id(init.get_partition_dp_group(param)), []).append(param)
        with _labelled(module, given):
            if len(buckets) < 2:
                return gather(given, safe_mode=safe_mode, quantize=quantize)
            init._ensure_availability_of_partitioned_params(given)  # swapped in together, as the releases do
            handles = [gather(bucket, safe_mode=safe_mode, quantize=quantize) for bucket in buckets.values()]
            return module.MultipleAllGatherHandles(handles)

    return all_gather_coalesced


def as_installed(init: Any, gather: Gather, module: Any) -> Gather:
    """The release's own order; only the gathers are labelled."""

    @functools.wraps(gather)
    def all_gather_coalesced(params: Iterable[Any], safe_mode: bool = False, quantize: bool = False) -> Any:
        given = list(params)
        with _labelled(module, given):
            return gather(given, safe_mode=safe_mode, quantize=quantize)

    return all_gather_coalesced


@contextmanager
def labelled() -> Iterator[None]:
    """The release as it is: the gathers are labelled where that can be done, and nothing else changes."""
    try:
        _find()
    except VariantError:
        yield  # code that is laid out otherwise still runs; its gathers go without labels
        return
    with wrapped(as_installed):
        yield


@contextmanager
def wrapped(wrap: Callable[[Any, Gather, Any], Gather]) -> Iterator[None]:
    """While entered, every parameter converted for ZeRO-3 gets its ``all_gather_coalesced`` wrapped by ``wrap``.

    Must be entered before any parameter is converted. VariantError if the release has no such code, or moved it.
    """
    module, original = _find()

    @functools.wraps(original)
    def convert(self: Any, param: Any) -> None:
        original(self, param)
        for name in ("all_gather_coalesced", "ds_id", "ds_process_group"):
            if not hasattr(param, name):
                raise VariantError(f"{_release()}: a converted parameter has no attribute {name!r} ({MODULE})")
        param.all_gather_coalesced = wrap(self, param.all_gather_coalesced, module)

    module.Init._convert_to_deepspeed_param = convert
    try:
        yield
    finally:
        module.Init._convert_to_deepspeed_param = original


def _find() -> tuple[Any, Callable[..., Any]]:
    """The module and the method to wrap; VariantError naming the first thing that is missing."""
    try:
        module = importlib.import_module(MODULE)
    except ImportError as error:
        raise VariantError(f"{_release()}: looked for the module {MODULE}: {error}") from error
    wanted = ("Init", "MultipleAllGatherHandles", "_dist_allgather_fn")
    for name in wanted:
        if not hasattr(module, name):
            raise VariantError(f"{_release()}: looked for {name} in {MODULE}; it isn't there")
    methods = ("_convert_to_deepspeed_param", "get_partition_dp_group", "_ensure_availability_of_partitioned_params")
    for name in methods:
        if not callable(getattr(module.Init, name, None)):
            raise VariantError(f"{_release()}: looked for the method Init.{name} in {MODULE}; it isn't there")
    original: Callable[..., Any] = module.Init._convert_to_deepspeed_param
    code = getattr(original, "__wrapped__", original).__code__
    if GROUP_ATTRIBUTE not in (*code.co_consts, *code.co_names):
        raise VariantError(
            f"{_release()}: looked for {GROUP_ATTRIBUTE!r} in Init._convert_to_deepspeed_param ({MODULE}); it isn't "
            "there. Up to 0.19.2 all parameters have one partition group, so there is no order of groups to fix"
        )
    return module, original


def _release() -> str:
    import deepspeed

    return f"DeepSpeed {deepspeed.__version__.strip()}"


@contextmanager
def _labelled(module: Any, params: list[Any]) -> Iterator[None]:
    """While entered, each gather is labelled with the ``ds_id`` of the parameters it carries.

    Gathers of equal shape that carry different parameters then show as mixed data. A gather carries the
    parameters of its group and dtype; where one group's parameters go one by one, all their ids stand on each.
    """
    original = module._dist_allgather_fn

    def gather(input_tensor: Any, output_tensor: Any, group: Any = None) -> Any:
        ids = [p.ds_id for p in params if p.ds_process_group is group and p.ds_tensor.dtype == output_tensor.dtype]
        ids = ids or [p.ds_id for p in params]  # another dtype or group on the wire: quantized, secondary
        with label("ds_id " + ",".join(map(str, sorted(ids)))):
            return original(input_tensor, output_tensor, group)

    module._dist_allgather_fn = gather
    try:
        yield
    finally:
        module._dist_allgather_fn = original


FIX = Fix(
    name="zero3_group_order",
    about="ZeRO-3 sorts by ds_id before it buckets parameters by process group",
    variants=(
        Variant("installed", "as the release is", labelled),
        Variant("with_fix", "sorted by ds_id, then bucketed by group", lambda: wrapped(sorted_first)),
        Variant("without_fix", "bucketed by group in the order given", lambda: wrapped(group_by_group)),
    ),
)
