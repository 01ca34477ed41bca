"""Every call of torch.distributed with known values: what each rank must hold afterwards.

A case is a function ``case(group, dtype)`` that runs in every rank and raises WrongValuesError where a value is wrong.
`run_cases` runs them all in one go, so that a whole table costs one task of a world.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import UnsupportedError, WrongValuesError

Group = Any
Case = Callable[[Group, torch.dtype], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Adds a case under its function's name."""
    CASES[function.__name__] = function
    return function


def run_cases(names: Sequence[str], dtypes: Sequence[str], ranks: Sequence[int] | None = None) -> dict[str, str]:
    """Run the cases in this rank, over the world or a group of ``ranks``; ``{"case dtype": what was wrong}``.

    What the backend refuses as unsupported is there as `NotOffered`, under the case's name alone.
    The sum of two small integers is exact in every dtype, so values are compared bit for bit.
    """
    warnings.simplefilter("ignore", FutureWarning)
    group = None if ranks is None else dist.new_group(list(ranks), group_desc="part")
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return {}
    wrong = {}
    for name in names:
        for dtype in dtypes:
            try:
                CASES[name](group, getattr(torch, dtype))
            except WrongValuesError as error:
                wrong[f"{name} {dtype}"] = str(error)
            except UnsupportedError as error:
                wrong[name] = NotOffered(error)
    return wrong


class NotOffered(str):
    """Why a backend has no such call."""

    __slots__ = ()


# --- helpers ------------------------------------------------------------------------------------------------


def me(group: Group) -> int:
    return int(dist.get_rank(group))


def size(group: Group) -> int:
    return int(dist.get_world_size(group))


def world_rank(group: Group, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)


def own(rank: int, n: int, dtype: torch.dtype, more: int = 0) -> torch.Tensor:
    """``n`` small values that tell the rank and the place apart."""
    return ((torch.arange(n) + 3 * rank + more) % 5).to(dtype)


def empty(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((n,), 1).to(dtype)


def same(what: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise WrongValuesError unless both are equal in shape, dtype and every bit."""
    if got.shape != expected.shape or got.dtype != expected.dtype or not torch.equal(_bits(got), _bits(expected)):
        raise WrongValuesError(f"{what}: got {got.tolist()}, expected {expected.tolist()}")


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dtype != torch.bool else tensor


def total(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum in the tensors' own dtype; for bool, as torch's sum of bools: any."""
    result = tensors[0].clone()
    for tensor in tensors[1:]:
        result = (result | tensor) if tensor.dtype == torch.bool else result + tensor
    return result


def all_of(group: Group, n: int, dtype: torch.dtype, more: int = 0) -> list[torch.Tensor]:
    return [own(rank, n, dtype, more) for rank in range(size(group))]


# --- gathers ------------------------------------------------------------------------------------------------


@case
def all_gather(group: Group, dtype: torch.dtype) -> None:
    out = [empty(5, dtype) for _ in range(size(group))]
    dist.all_gather(out, own(me(group), 5, dtype), group=group)
    for got, expected in zip(out, all_of(group, 5, dtype), strict=True):
        same("all_gather", got, expected)


@case
def all_gather_async(group: Group, dtype: torch.dtype) -> None:
    out = [empty(1, dtype) for _ in range(size(group))]
    work = dist.all_gather(out, own(me(group), 1, dtype), group=group, async_op=True)
    assert work is not None
    work.wait()
    for got, expected in zip(out, all_of(group, 1, dtype), strict=True):
        same("all_gather async", got, expected)


@case
def all_gather_into_tensor(group: Group, dtype: torch.dtype) -> None:
    out = empty(4 * size(group), dtype)
    dist.all_gather_into_tensor(out, own(me(group), 4, dtype), group=group)
    same("all_gather_into_tensor", out, torch.cat(all_of(group, 4, dtype)))


@case
def all_gather_coalesced(group: Group, dtype: torch.dtype) -> None:
    """The manager's fast path: several all_gathers into tensors as one."""
    outs = [empty(n * size(group), dtype) for n in (2, 3)]
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        for n, out in zip((2, 3), outs, strict=True):
            dist.all_gather_into_tensor(out, own(me(group), n, dtype, n), group=group)
    manager.wait()
    for n, out in zip((2, 3), outs, strict=True):
        same("coalesced all_gather", out, torch.cat(all_of(group, n, dtype, n)))


@case
def gather(group: Group, dtype: torch.dtype) -> None:
    root = size(group) - 1
    out = [empty(3, dtype) for _ in range(size(group))] if me(group) == root else None
    dist.gather(own(me(group), 3, dtype), out, dst=world_rank(group, root), group=group)
    for got, expected in zip(out or [], all_of(group, 3, dtype), strict=out is not None):
        same("gather", got, expected)


@case
def scatter(group: Group, dtype: torch.dtype) -> None:
    out = empty(3, dtype)
    sent = all_of(group, 3, dtype) if me(group) == 0 else None
    dist.scatter(out, sent, src=world_rank(group, 0), group=group)
    same("scatter", out, own(me(group), 3, dtype))


@case
def broadcast(group: Group, dtype: torch.dtype) -> None:
    root = size(group) - 1
    data = own(me(group), 6, dtype)
    dist.broadcast(data, src=world_rank(group, root), group=group)
    same("broadcast", data, own(root, 6, dtype))


# --- reductions ---------------------------------------------------------------------------------------------


@case
def all_reduce(group: Group, dtype: torch.dtype) -> None:
    data = own(me(group), 4, dtype)
    dist.all_reduce(data, group=group)
    same("all_reduce", data, total(all_of(group, 4, dtype)))


@case
def all_reduce_max(group: Group, dtype: torch.dtype) -> None:
    data = own(me(group), 4, dtype)
    work = dist.all_reduce(data, dist.ReduceOp.MAX, group=group, async_op=True)
    assert work is not None
    work.wait()
    same("all_reduce MAX", data, torch.stack(all_of(group, 4, dtype)).amax(0))


@case
def all_reduce_coalesced(group: Group, dtype: torch.dtype) -> None:
    data = [own(me(group), n, dtype) for n in (1, 4)]
    with dist._coalescing_manager(group=group):
        for tensor in data:
            dist.all_reduce(tensor, group=group)
    for n, got in zip((1, 4), data, strict=True):
        same("coalesced all_reduce", got, total(all_of(group, n, dtype)))


@case
def reduce(group: Group, dtype: torch.dtype) -> None:
    root = size(group) - 1
    data = own(me(group), 4, dtype)
    dist.reduce(data, dst=world_rank(group, root), group=group)
    if me(group) == root:
        same("reduce", data, total(all_of(group, 4, dtype)))


@case
def reduce_scatter(group: Group, dtype: torch.dtype) -> None:
    out = empty(2, dtype)
    dist.reduce_scatter(out, [own(me(group), 2, dtype, k) for k in range(size(group))], group=group)
    same("reduce_scatter", out, total(all_of(group, 2, dtype, me(group))))


@case
def reduce_scatter_tensor(group: Group, dtype: torch.dtype) -> None:
    out = empty(2, dtype)
    whole = torch.cat([own(me(group), 2, dtype, k) for k in range(size(group))])
    dist.reduce_scatter_tensor(out, whole, group=group)
    same("reduce_scatter_tensor", out, total(all_of(group, 2, dtype, me(group))))


@case
def reduce_scatter_coalesced(group: Group, dtype: torch.dtype) -> None:
    outs = [empty(n, dtype) for n in (1, 3)]
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        for n, out in zip((1, 3), outs, strict=True):
            whole = torch.cat([own(me(group), n, dtype, k) for k in range(size(group))])
            dist.reduce_scatter_tensor(out, whole, group=group)
    manager.wait()
    for n, out in zip((1, 3), outs, strict=True):
        same("coalesced reduce_scatter", out, total(all_of(group, n, dtype, me(group))))


# --- all to all ---------------------------------------------------------------------------------------------


@case
def all_to_all_single(group: Group, dtype: torch.dtype) -> None:
    out = empty(2 * size(group), dtype)
    dist.all_to_all_single(out, torch.cat([own(me(group), 2, dtype, k) for k in range(size(group))]), group=group)
    same("all_to_all_single", out, torch.cat(all_of(group, 2, dtype, me(group))))


@case
def all_to_all_single_uneven(group: Group, dtype: torch.dtype) -> None:
    """Rank r sends k + 1 elements to rank k."""
    n = size(group)
    rows = [own(me(group), k + 1, dtype, k) for k in range(n)]
    out = empty((me(group) + 1) * n, dtype)
    dist.all_to_all_single(out, torch.cat(rows), [me(group) + 1] * n, [k + 1 for k in range(n)], group=group)
    same("uneven all_to_all_single", out, torch.cat(all_of(group, me(group) + 1, dtype, me(group))))


@case
def all_to_all(group: Group, dtype: torch.dtype) -> None:
    out = [empty(2, dtype) for _ in range(size(group))]
    dist.all_to_all(out, [own(me(group), 2, dtype, k) for k in range(size(group))], group=group)
    for got, expected in zip(out, all_of(group, 2, dtype, me(group)), strict=True):
        same("all_to_all", got, expected)


# --- point to point -----------------------------------------------------------------------------------------


def _ring(group: Group) -> tuple[int, int]:
    """World ranks of the next and the previous member."""
    n = size(group)
    return world_rank(group, (me(group) + 1) % n), world_rank(group, (me(group) - 1) % n)


@case
def send_recv(group: Group, dtype: torch.dtype) -> None:
    """Around the ring; the first member receives before it sends, so that rendezvous sends meet their recv."""
    after, before = _ring(group)
    got = empty(3, dtype)
    if me(group):
        dist.send(own(me(group), 3, dtype), dst=after, group=group, tag=7)
        dist.recv(got, src=before, group=group, tag=7)
    else:
        dist.recv(got, src=before, group=group, tag=7)
        dist.send(own(me(group), 3, dtype), dst=after, group=group, tag=7)
    same("send/recv", got, own((me(group) - 1) % size(group), 3, dtype))


@case
def isend_irecv(group: Group, dtype: torch.dtype) -> None:
    """Two messages each way with tags, waited for in the opposite order; issued so that one queue a rank suffices."""
    after, before = _ring(group)
    got = [empty(2, dtype) for _ in range(2)]
    works = []
    for step in range(4):
        tag = step // 2
        if (step + me(group)) % 2:
            works.append(dist.irecv(got[tag], src=before, group=group, tag=tag))
        else:
            works.append(dist.isend(own(me(group), 2, dtype, tag), dst=after, group=group, tag=tag))
    for work in reversed(works):
        assert work is not None
        work.wait()
    for tag in range(2):
        same("isend/irecv", got[tag], own((me(group) - 1) % size(group), 2, dtype, tag))


@case
def batch_isend_irecv(group: Group, dtype: torch.dtype) -> None:
    after, before = _ring(group)
    got = empty(4, dtype)
    calls = [
        dist.P2POp(dist.isend, own(me(group), 4, dtype), after, group=group),
        dist.P2POp(dist.irecv, got, before, group=group),
    ]
    if me(group) % 2:
        calls.reverse()
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    same("batch_isend_irecv", got, own((me(group) - 1) % size(group), 4, dtype))


# --- whole objects, barriers, groups ------------------------------------------------------------------------


def equal(what: str, got: object, expected: object) -> None:
    """Raise WrongValuesError unless equal."""
    if got != expected:
        raise WrongValuesError(f"{what}: got {got!r}, expected {expected!r}")


@case
def objects(group: Group, dtype: torch.dtype) -> None:
    """Objects of different sizes per rank: gathered, broadcast, scattered, sent."""
    n, rank = size(group), me(group)
    everyone = [{"rank": k, "text": "x" * k} for k in range(n)]
    got: list[Any] = [None] * n
    dist.all_gather_object(got, everyone[rank], group=group)
    equal("all_gather_object", got, everyone)
    at_root: list[Any] | None = [None] * n if rank == 0 else None
    dist.gather_object(everyone[rank], at_root, dst=world_rank(group, 0), group=group)
    equal("gather_object", at_root, everyone if rank == 0 else None)
    sent: list[Any] = [everyone[0], "two"] if rank == 0 else [None, None]
    dist.broadcast_object_list(sent, src=world_rank(group, 0), group=group)
    equal("broadcast_object_list", sent, [everyone[0], "two"])
    one: list[Any] = [None]
    dist.scatter_object_list(one, everyone if rank == 0 else None, src=world_rank(group, 0), group=group)
    equal("scatter_object_list", one, [everyone[rank]])


@case
def barriers(group: Group, dtype: torch.dtype) -> None:
    dist.barrier(group=group)
    work = dist.barrier(group=group, async_op=True)
    assert work is not None
    work.wait()
    pg = group or dist.distributed_c10d._get_default_group()
    pg.barrier(opts=dist.BarrierOptions()).wait()


@case
def smaller_groups(group: Group, dtype: torch.dtype) -> None:
    """Groups made within a run, used, and destroyed; only the whole world may make some, so on others nothing."""
    if group is not None:
        return
    mine, every = dist.new_subgroups_by_enumeration([[k] for k in range(size(None))])
    equal("members", dist.get_process_group_ranks(mine), [me(None)])
    everyone = dist.new_group(group_desc="everyone")
    data = own(me(None), 3, dtype)
    dist.all_reduce(data, group=everyone)
    same("all_reduce on a new group", data, total(all_of(None, 3, dtype)))
    local = dist.new_group([0, size(None) - 1], use_local_synchronization=True)
    if me(None) in (0, size(None) - 1):
        dist.barrier(local)
        dist.destroy_process_group(local)
    dist.destroy_process_group(everyone)
    equal("groups", len(every), size(None))


@case
def handles(group: Group, dtype: torch.dtype) -> None:
    """What a handle says of itself, and its future."""
    out = empty(2 * size(group), dtype)
    work = dist.all_gather_into_tensor(out, own(me(group), 2, dtype), group=group, async_op=True)
    assert work is not None
    future = work.get_future()
    future.wait()
    expected = torch.cat(all_of(group, 2, dtype))
    same("all_gather by future", out, expected)
    work.wait()
    equal("is_completed", work.is_completed(), True)
    equal("exception", work.exception(), None)
    data = own(me(group), 2, dtype)
    reduced = dist.all_reduce(data, group=group, async_op=True)
    assert reduced is not None
    chained = reduced.get_future().then(lambda future: future.value())
    same("all_reduce by a chained future", chained.wait()[0], total(all_of(group, 2, dtype)))


@case
def monitored_barrier(group: Group, dtype: torch.dtype) -> None:
    """Stands last: torch's debug wrapper fails every later collective on more than two ranks (2.13)."""
    if dist.get_backend(group) != "gloo":
        raise UnsupportedError("torch has this barrier for gloo alone")
    dist.monitored_barrier(group)
    data = own(me(group), 2, dtype)
    dist.all_reduce(data, group=group)
    same("all_reduce after a monitored_barrier", data, total(all_of(group, 2, dtype)))
