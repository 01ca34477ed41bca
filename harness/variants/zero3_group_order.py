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
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import VariantError
from harness.model.spans import spans
from harness.record import label
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
        with labelled(init, module, ordered, quantize):
            return gather(ordered, safe_mode=safe_mode, quantize=quantize)

    return all_gather_coalesced


def group_by_group(init: Any, gather: Gather, module: Any) -> Gather:
    """As without the fix: bucket in the order given, then gather bucket by bucket."""

    @functools.wraps(gather)
    def all_gather_coalesced(params: Iterable[Any], safe_mode: bool = False, quantize: bool = False) -> Any:
        given = list(params)
        buckets = buckets_of(init, given)
        with labelled(init, module, given, quantize):
            if len(buckets) < 2:
                return gather(given, safe_mode=safe_mode, quantize=quantize)
            init._ensure_availability_of_partitioned_params(given)  # swapped in together, as the releases do
            handles = [gather(bucket, safe_mode=safe_mode, quantize=quantize) for bucket in buckets]
            return module.MultipleAllGatherHandles(handles)

    return all_gather_coalesced


def as_installed(init: Any, gather: Gather, module: Any) -> Gather:
    """The release's own order; only the gathers are labelled."""

    @functools.wraps(gather)
    def all_gather_coalesced(params: Iterable[Any], safe_mode: bool = False, quantize: bool = False) -> Any:
        given = list(params)
        with labelled(init, module, given, quantize, in_order=False):
            return gather(given, safe_mode=safe_mode, quantize=quantize)

    return all_gather_coalesced


@contextmanager
def as_it_is() -> Iterator[None]:
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


def lacks(params: object = None) -> str | None:
    """Why the release that is installed has no order of groups at all, or None. Reads its source, imports nothing."""
    found = importlib.util.find_spec("deepspeed")
    if found is None or found.origin is None:
        return None  # that DeepSpeed is missing is said elsewhere
    source = Path(found.origin).parent.joinpath(*MODULE.split(".")[1:]).with_suffix(".py")
    if not source.is_file() or GROUP_ATTRIBUTE not in source.read_text(encoding="utf-8"):
        return (
            f"this DeepSpeed partitions all parameters over one group: {GROUP_ATTRIBUTE} isn't in {MODULE}; "
            "it came with 0.19.3"
        )
    return None


def _release() -> str:
    import deepspeed

    return f"DeepSpeed {deepspeed.__version__.strip()}"


def buckets_of(init: Any, params: Iterable[Any]) -> list[list[Any]]:
    """The parameters by partition group, groups in the order first seen."""
    buckets: dict[int, list[Any]] = {}
    for param in params:
        buckets.setdefault(id(init.get_partition_dp_group(param)), []).append(param)
    return list(buckets.values())


@contextmanager
def labelled(init: Any, module: Any, params: list[Any], quantize: bool, *, in_order: bool = True) -> Iterator[None]:
    """While entered, each gather is labelled with the ``ds_id`` of the parameters it carries.

    Gathers that carry different parameters, yet meet because they are of equal shape, then show as mixed data. A
    gather is recognized by its group; one over another group than the parameters' own (ZeRO++ hpZ gathers secondary
    partitions within a node) by its place, where the release gathers buckets as they come (``in_order``).
    """
    original = module._dist_allgather_fn
    expected = list(_gathers(init, module, params, quantize))
    everything = _label(params)

    def gather(input_tensor: Any, output_tensor: Any, group: Any = None) -> Any:
        places = [place for place, (own, _) in enumerate(expected) if own is group]
        if not places and in_order and expected:
            places = [0]
        text = expected.pop(places[0])[1] if places else everything
        with label(text):
            return original(input_tensor, output_tensor, group)

    module._dist_allgather_fn = gather
    try:
        yield
    finally:
        module._dist_allgather_fn = original


def _gathers(init: Any, module: Any, params: list[Any], quantize: bool) -> Iterator[tuple[Any, str]]:
    """The partition group and the label of each gather that a call with these parameters issues, bucket by bucket."""
    dtype_on_the_wire = getattr(module, "get_allgather_dtype", lambda param, tensor: tensor.dtype)
    for bucket in buckets_of(init, params):
        bucket.sort(key=lambda p: p.ds_id)
        if getattr(init, "allgather_sequential", False) or len(bucket) == 1:
            parts = [[param] for param in bucket]
        elif quantize:
            parts = [bucket]
        else:
            by_dtype: dict[str, list[Any]] = {}
            for param in bucket:
                by_dtype.setdefault(str(dtype_on_the_wire(param, param.ds_tensor)), []).append(param)
            parts = [by_dtype[dtype] for dtype in sorted(by_dtype)]
        for part in parts:
            for _ in range(2 if quantize else 1):  # quantized values, and their scales
                yield init.get_partition_dp_group(part[0]), _label(part)


def _label(params: Iterable[Any]) -> str:
    return f"ds_id {spans(param.ds_id for param in params)}"


FIX = Fix(
    name="zero3_group_order",
    about="ZeRO-3 sorts by ds_id before it buckets parameters by process group",
    variants=(
        Variant("installed", "as the release is", as_it_is),
        Variant("with_fix", "sorted by ds_id, then bucketed by group", lambda: wrapped(sorted_first)),
        Variant("without_fix", "bucketed by group in the order given", lambda: wrapped(group_by_group)),
    ),
)
