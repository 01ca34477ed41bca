"""DeepSpeed in a standing rank: connected to the default process group that exists, reset between cells."""

from __future__ import annotations

import builtins
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: How many places `scattered_addresses` shuffles: several times the parameters of any model here.
SCATTERED = 800

_connected_to: Any = None


def connect() -> None:
    """Let DeepSpeed use this rank's default process group. Called first by every body; cheap when repeated."""
    global _connected_to
    import deepspeed.comm
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world), ("LOCAL_SIZE", world)):
        os.environ.setdefault(name, str(value))
    if _connected_to is not dist.group.WORLD:
        # The first start of DeepSpeed's torch backend on a CPU compiles a shared-memory extension, for up to
        # minutes, that only inference uses. The module is shadowed by its star imports, hence sys.modules.
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
        sys.modules["deepspeed.comm.comm"].cdb = None  # type: ignore[attr-defined]
        deepspeed.comm.init_distributed(dist_backend=dist.get_backend(), verbose=False)
        _connected_to = dist.group.WORLD
    reset()


def reset() -> None:
    """Forget what earlier cells left in DeepSpeed's module and class attributes."""
    from deepspeed.runtime.zero.partition_parameters import Init
    from deepspeed.utils import groups

    Init.param_id = 0
    Init.apply_param_persistence = False
    Init.num_persisted_parameters = 0
    Init.num_persisted_elements = 0
    release = getattr(groups, "_release_process_group_references", None)  # not in every release
    if release is not None:
        release()


@contextmanager
def scattered_addresses(arrival: str) -> Iterator[None]:
    """Under the arrival ``natural``, parameters made while entered get addresses as in separately started ranks.

    Ranks forked from one parent allocate alike, so their sets of parameters iterate alike, which ranks of a launcher
    don't. Freeing some of many parameters in random order leaves their places free in that order.
    """
    import torch

    kept: list[Any] = []
    if arrival == "natural":
        kept = [torch.nn.Parameter(torch.empty(0)) for _ in range(SCATTERED)]
        random.SystemRandom().shuffle(kept)
        del kept[SCATTERED // 4 :]
    try:
        yield
    finally:
        kept.clear()


@contextmanager
def noted_modules(model: Any) -> Iterator[None]:
    """While entered, each rank notes the module whose parameters ZeRO-3 fetches: the prefetch call belongs to it."""
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    from harness.record import current

    names = {id(module): name for name, module in model.named_modules()}
    original = PartitionedParameterCoordinator.fetch_sub_module

    def fetch_sub_module(self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        current().note("module", names.get(id(module)) or type(module).__name__)
        return original(self, module, *args, **kwargs)

    PartitionedParameterCoordinator.fetch_sub_module = fetch_sub_module
    try:
        yield
    finally:
        PartitionedParameterCoordinator.fetch_sub_module = original


@contextmanager
def prefetch_order(order: Callable[[Sequence[Any]], list[Any]]) -> Iterator[None]:
    """While entered, sets of parameters in ZeRO-3's prefetcher iterate in ``order`` of their construction order.

    A real set iterates by address; which addresses parameters get is all that this replaces.
    """
    import deepspeed.runtime.zero.partitioned_param_coordinator as module

    class OrderedSet(builtins.set):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            items = list(super().__iter__())
            if items and all(hasattr(item, "ds_id") for item in items):
                return iter(order(sorted(items, key=lambda item: item.ds_id)))
            return iter(items)

    module.set = OrderedSet
    try:
        yield
    finally:
        del module.set
