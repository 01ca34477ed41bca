"""Small bodies that go wrong, or would under another backend: each with what every progress model makes of it.

A hazard's body runs in every rank of a world of its size and returns this rank's result. What is expected of it is
given per model, as verdicts of `harness.record.verdict`; a real engine is compared with the model that it is taken
to follow, and `harness.testing.behaves_like` finds the one it does follow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import WrongValuesError
from harness.record import label

#: The models in the order in which tables show them.
MODELS = ("independent", "lanes:2", "lane", "host_blocking", "first_use")


@dataclass(frozen=True)
class Hazard:
    """``expect`` maps each model to a verdict; ``order`` is the order verdict, the same under all."""

    name: str
    about: str
    world: int
    body: Callable[[], Any]
    expect: Mapping[str, str]
    order: str = "consistent"
    #: Whether a real engine can be held to it; torch itself gives groups created in opposite orders equal names.
    real: bool = True


HAZARDS: dict[str, Hazard] = {}


def hazard(
    about: str,
    *,
    world: int = 2,
    order: str = "consistent",
    real: bool = True,
    otherwise: str = "completes",
    **expect: str,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Adds a body: ``lane="deadlock"``, ``lanes2=...`` for what models give, ``otherwise`` for the rest."""

    def add(body: Callable[[], Any]) -> Callable[[], Any]:
        verdicts = {model: expect.get(model.replace(":", ""), otherwise) for model in MODELS}
        HAZARDS[body.__name__] = Hazard(body.__name__, about, world, body, verdicts, order, real)
        return body

    return add


# --- helpers ------------------------------------------------------------------------------------------------


def pair(*members: int, name: str) -> Any:
    """A group of those ranks; every rank calls this."""
    return dist.new_group(list(members), group_desc=name)


def used(*groups: Any) -> None:
    """Use each group once, in the same order everywhere, so that first uses are over."""
    for group in groups:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.barrier(group=group)


def gather(group: Any, name: str, n: int = 4, wait: bool = False) -> Any:
    """An all_gather labelled ``name``; returns a call that waits for it and checks the values."""
    rank, members = dist.get_rank(), dist.get_process_group_ranks(group or dist.group.WORLD)
    out = torch.empty(n * len(members))
    with label(name):
        work = dist.all_gather_into_tensor(out, torch.full((n,), float(rank)), group=group, async_op=True)
    assert work is not None

    def finish() -> None:
        work.wait()
        expected = torch.repeat_interleave(torch.tensor(members, dtype=torch.float32), n)
        if not torch.equal(out, expected):
            raise WrongValuesError(f"all_gather {name}: got {out.tolist()}, expected {expected.tolist()}")

    if wait:
        finish()
    return finish


def gather_in_order(groups: list[tuple[str, Any]], *, blocking: bool = False) -> None:
    """Gather over each group in the order given, waiting after each or after all."""
    finishes = [gather(group, name, wait=blocking) for name, group in groups]
    for finish in [] if blocking else finishes:
        finish()


# --- order --------------------------------------------------------------------------------------------------


@hazard(
    "two groups over the same ranks, in opposite orders, waited for at the end",
    order="cyclic",
    lane="deadlock",
    host_blocking="deadlock",
)
def inversion() -> None:
    dense, expert = None, pair(0, 1, name="expert")
    used(dense, expert)
    groups = [("dense", dense), ("expert", expert)]
    gather_in_order(groups if dist.get_rank() == 0 else groups[::-1])


@hazard("the same, waited for one by one", order="cyclic", otherwise="deadlock")
def blocking_inversion() -> None:
    dense, expert = None, pair(0, 1, name="expert")
    used(dense, expert)
    groups = [("dense", dense), ("expert", expert)]
    gather_in_order(groups if dist.get_rank() == 0 else groups[::-1], blocking=True)


@hazard(
    "the same on groups that were never used before",
    order="cyclic",
    lane="deadlock",
    host_blocking="deadlock",
    first_use="deadlock",
)
def first_inversion() -> None:
    dense, expert = None, pair(0, 1, name="expert")
    groups = [("dense", dense), ("expert", expert)]
    gather_in_order(groups if dist.get_rank() == 0 else groups[::-1])


@hazard(
    "four groups, two by two in opposite orders: more than two operations at once are needed",
    order="cyclic",
    lanes2="deadlock",
    lane="deadlock",
    host_blocking="deadlock",
)
def wide_inversion() -> None:
    groups = [(name, pair(0, 1, name=name)) for name in "abcd"]
    used(*(group for _, group in groups))
    gather_in_order(groups if dist.get_rank() == 0 else groups[2:] + groups[:2])


@hazard(
    "three groups in a ring, no two ranks sharing two of them",
    world=3,
    order="cyclic",
    lane="deadlock",
    host_blocking="deadlock",
)
def ring() -> None:
    names = ("left", "right", "far")
    groups = [pair(k, (k + 1) % 3, name=name) for k, name in enumerate(names)]
    used(*groups)
    rank = dist.get_rank()
    mine = [(names[k], groups[k]) for k in (rank, (rank - 1) % 3)]
    gather_in_order(mine)


@hazard("odd ranks reversed, but no two ranks of a small group disagree", world=4, order="consistent")
def harmless_reversal() -> None:
    """Ranks 1 and 3 form one small group and agree; the world's order is the only thing they could disagree about."""
    expert = [pair(0, 2, name="even"), pair(1, 3, name="odd")][dist.get_rank() % 2]
    used(None)
    used(expert)
    groups = [("dense", None), ("expert", expert)]
    gather_in_order(groups if dist.get_rank() % 2 == 0 else groups[::-1])


@hazard("creations of groups in opposite orders", real=False, otherwise="mismatch")
def inverted_creation() -> None:
    for name in ("dense", "expert") if dist.get_rank() == 0 else ("expert", "dense"):
        pair(0, 1, name=name)


@hazard(
    "receives posted before sends on both sides, with handles",
    order="cyclic",
    lane="deadlock",
    host_blocking="deadlock",
    first_use="completes",
)
def crossed_receives() -> None:
    used(None)
    other, got = 1 - dist.get_rank(), torch.empty(2)
    works = [dist.irecv(got, src=other), dist.isend(torch.full((2,), float(dist.get_rank())), dst=other)]
    for work in works:
        assert work is not None
        work.wait()


@hazard("the same as one batch, listed in opposite orders")
def batched_exchange() -> None:
    used(None)
    other, got = 1 - dist.get_rank(), torch.empty(2)
    calls = [dist.P2POp(dist.irecv, got, other), dist.P2POp(dist.isend, torch.zeros(2), other)]
    for work in dist.batch_isend_irecv(calls if dist.get_rank() == 0 else calls[::-1]):
        work.wait()


# --- what does not belong together --------------------------------------------------------------------------


@hazard("an all_reduce meets a broadcast", otherwise="mismatch")
def mismatched_kind() -> None:
    used(None)
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4))
    else:
        dist.broadcast(torch.ones(4), src=0)


@hazard("equal calls whose data do not belong together", otherwise="silent_mix")
def mixed_labels() -> None:
    used(None)
    gather(None, "expert 0" if dist.get_rank() == 0 else "expert 1", wait=True)


# --- ranks and threads --------------------------------------------------------------------------------------


@hazard("one rank returns without its part", otherwise="missing")
def missing_part() -> None:
    used(None)
    if dist.get_rank() == 0:
        gather(None, "dense", wait=True)


@hazard("one rank raises before its part", otherwise="crashed")
def raising_rank() -> None:
    used(None)
    if dist.get_rank() == 1:
        raise ValueError("this rank had enough")
    gather(None, "dense", wait=True)


@hazard("one rank's process exits before its part", otherwise="crashed")
def early_exit() -> None:
    used(None)
    if dist.get_rank() == 1:
        os._exit(0)
    gather(None, "dense", wait=True)


def _in_thread(work: Callable[[], None], name: str) -> Callable[[], None]:
    """Start ``work`` in a thread; returns a call that joins it and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that joins
            raised.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()

    def join() -> None:
        thread.join()
        if raised:
            raise raised[0]

    return join


@hazard("a late thread issues what the other rank waits for", lane="deadlock")
def late_thread() -> None:
    """Nothing is proved while a live thread that has issued nothing could still issue the missing part.

    In one queue, the late part stands behind the main thread's own, and that one waits for the other rank.
    """
    expert = pair(0, 1, name="expert")
    used(None, expert)
    late, issued = threading.Event(), threading.Event()

    def save() -> None:
        late.wait()
        finish = gather(expert, "expert")
        issued.set()
        finish()

    join = _in_thread(save, "saver")
    if dist.get_rank() == 0:
        threading.Timer(0.15, late.set).start()
    else:
        late.set()
        issued.wait()
    gather(None, "dense", wait=True)
    join()


@hazard(
    "two threads of each rank, each pair in opposite orders on its two groups", order="cyclic", otherwise="deadlock"
)
def crossed_threads() -> None:
    groups = [None, *(pair(0, 1, name=name) for name in ("expert", "saved", "checked"))]
    used(*groups)
    first, second, third, fourth = [(name, group) for name, group in zip("abcd", groups, strict=True)]
    turn = 1 if dist.get_rank() == 0 else -1
    join = _in_thread(lambda: gather_in_order([third, fourth][::turn], blocking=True), "saver")
    gather_in_order([first, second][::turn], blocking=True)
    join()
