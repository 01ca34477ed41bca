"""One operation of a program as a call of torch.distributed, with its buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import UnsupportedError
from harness.model.operation import Operation

#: What a receiving buffer holds before anything comes: no label's value.
EMPTY = 0


@dataclass
class Issued:
    """A call under way: its handle, and the slots that will hold the result (none where this rank receives nothing)."""

    op: Operation
    work: Any
    slots: list[torch.Tensor]


def issue(op: Operation, group: Any, rank: int, value: float | None) -> Issued:
    """Issue the operation asynchronously. ``value`` fills the input, 1 if it is None.

    Raises UnsupportedError for a dtype that torch has not.
    """
    dtype = getattr(torch, op.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise UnsupportedError(f"{op}: torch has no dtype {op.dtype}")
    fill = 1 if value is None else value
    return _CALLS[op.kind](op, group, rank, _Buffers(op, dtype, fill))


@dataclass(frozen=True)
class _Buffers:
    op: Operation
    dtype: torch.dtype
    fill: float

    @property
    def members(self) -> int:
        return len(self.op.group.ranks)

    def full(self, count: int = 1) -> torch.Tensor:
        return torch.full((self.op.n * count,), self.fill).to(self.dtype)

    def empty(self, count: int = 1) -> torch.Tensor:
        return torch.full((self.op.n * count,), EMPTY).to(self.dtype)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return list(tensor.split(self.op.n))


def _all_reduce(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    tensor = b.full()
    return Issued(op, dist.all_reduce(tensor, group=group, async_op=True), [tensor])


def _all_gather(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    out = b.empty(b.members)
    return Issued(op, dist.all_gather_into_tensor(out, b.full(), group=group, async_op=True), b.split(out))


def _reduce_scatter(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    out = b.empty()
    return Issued(op, dist.reduce_scatter_tensor(out, b.full(b.members), group=group, async_op=True), [out])


def _all_to_all(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    out = b.empty(b.members)
    work = dist.all_to_all_single(out, b.full(b.members), group=group, async_op=True)
    return Issued(op, work, b.split(out))


def _barrier(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    return Issued(op, dist.barrier(group=group, async_op=True), [])


def _broadcast(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    tensor = b.full() if rank == op.root else b.empty()
    return Issued(op, dist.broadcast(tensor, src=op.root, group=group, async_op=True), [tensor])


def _reduce(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    tensor = b.full()
    work = dist.reduce(tensor, dst=op.root, group=group, async_op=True)
    return Issued(op, work, [tensor] if rank == op.root else [])


def _gather(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    slots = [b.empty() for _ in range(b.members)] if rank == op.root else []
    work = dist.gather(b.full(), slots or None, dst=op.root, group=group, async_op=True)
    return Issued(op, work, slots)


def _scatter(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    out = b.empty()
    parts = [b.full() for _ in range(b.members)] if rank == op.root else None
    return Issued(op, dist.scatter(out, parts, src=op.root, group=group, async_op=True), [out])


def _send(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    return Issued(op, dist.isend(b.full(), dst=op.peer, group=group, tag=op.tag), [])


def _recv(op: Operation, group: Any, rank: int, b: _Buffers) -> Issued:
    tensor = b.empty()
    return Issued(op, dist.irecv(tensor, src=op.peer, group=group, tag=op.tag), [tensor])


_CALLS: dict[str, Callable[[Operation, Any, int, _Buffers], Issued]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "send": _send,
    "recv": _recv,
}
