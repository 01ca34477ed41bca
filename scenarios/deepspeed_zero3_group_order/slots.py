"""Which parameters a cell has, and what the order of their gathers must lead to. Pure: no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.errors import UsageError
from harness.model.operation import Operation
from harness.model.spans import spans
from harness.model.topology import Topology

#: The order in which DeepSpeed gathers the dtypes of one group (``sort_dtypes``: by their names).
DTYPES = ("bfloat16", "float16", "float32")


class Slot(NamedTuple):
    """One parameter of the model: its partition group, shape and dtype, and whether it persists once gathered.

    Its place in the model's list is its ``ds_id``; a rank outside the group doesn't have it.
    """

    group: str
    shape: tuple[int, ...]
    dtype: str
    persist: bool = False

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


def slots_over(topology: Topology, dtypes: Iterable[str]) -> tuple[Slot, ...]:
    """For each group and dtype four sizes: an even one, one that needs padding, one element, one that persists.

    Groups alternate, so that construction order runs through all of them again and again.
    """
    wanted = tuple(dtypes)
    for dtype in wanted:
        if dtype not in DTYPES:
            raise UsageError(f"parameter dtypes: {dtype!r} is unknown; accepted: {', '.join(DTYPES)}")
    kinds = [((4 * topology.world, 3), False), ((2 * topology.world + 1,), False), ((1,), False), ((5,), True)]
    return tuple(
        Slot(group, shape, dtype, persist) for dtype in wanted for shape, persist in kinds for group in topology.groups
    )


def gathers(slots: Sequence[Slot], order: Sequence[int], topology: Topology, *, fixed: bool) -> list[Operation]:
    """The gathers that one call of ``all_gather_coalesced`` issues, in order, all asynchronous.

    ``order`` lists the slots (by index) that the call is given on this rank. Groups of one rank need no gather;
    DeepSpeed returns before issuing one only where *all* parameters of the call are whole, which a bucket is.
    """
    buckets: dict[str, list[int]] = {}
    for index in sorted(order) if fixed else order:
        buckets.setdefault(slots[index].group, []).append(index)
    issued = []
    for name, bucket in buckets.items():
        size = len(topology.groups[name])
        if size == 1:
            continue
        for dtype in DTYPES:
            parts = sorted(i for i in bucket if slots[i].dtype == dtype)
            if parts:
                elements = sum(-(-slots[i].numel // size) for i in parts)
                label = f"ds_id {spans(parts)}"
                issued.append(Operation("all_gather", topology.group(name), n=elements, dtype=dtype, label=label))
    return issued
