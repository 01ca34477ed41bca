"""The progress model compiled: single-threaded programs of millions of events, as arrays.

Without threads every operation's instance is known beforehand and every interleaving ends alike, so that one pass over
integers decides. `Progress` is the oracle: equal on random programs by test. numba is optional; where it is not
installed `AVAILABLE` is false, the same code runs uncompiled, and callers choose the plain form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba

    AVAILABLE = True
except ImportError:  # the optional extra `fast`
    AVAILABLE = False


def compiled(function: F) -> F:
    """Compile a function over arrays, once per machine; or leave it as it is where numba is missing."""
    return numba.njit(cache=True, nogil=True)(function) if AVAILABLE else function


#: Events: ISSUE first, count; WAIT first, end (of operations); SYNC; TELL pair, rank; HEAR pair, rank.
ISSUE, WAIT, SYNC, TELL, HEAR = range(5)
#: What a host stands at.
RUNS, AWAITS, SYNCS, HEARS, FIRST_USE, ENDED = range(6)
COMPLETES, DEADLOCK, MISSING, MISMATCH, SILENT_MIX = 1, 2, 4, 8, 16
OUTCOMES = {COMPLETES: "completes", DEADLOCK: "deadlock", MISSING: "missing", MISMATCH: "mismatch"}


@dataclass(frozen=True)
class Arrays:
    """A single-threaded program as arrays. Operations are numbered rank by rank in issue order.

    ``x_ptr`` arrays hold where each owner's run of ``x`` begins, and one past the end. An instance's slots are
    the parts it needs: the rank, and the operation, -1 if the program has none. ``op_member`` is the place of
    (the operation's group, its rank) among all members, -1 for a creation. ``op_sig`` is equal for parts that agree.
    """

    event_ptr: Any
    event_code: Any
    event_a: Any
    event_b: Any
    op_ptr: Any
    op_rank: Any
    op_instance: Any
    op_sig: Any
    op_label: Any
    op_send: Any
    op_group: Any
    op_member: Any
    slot_ptr: Any
    slot_rank: Any
    slot_op: Any
    member_ptr: Any
    member_rank: Any
    pairs: int

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.event_ptr) - 1


@dataclass(frozen=True)
class State:
    """Where a run ended: what each host stands at, how far each rank issued and started, which operations completed.

    ``low`` and ``high`` bound the operations a host stands at; for `HEARS`, ``low`` is the rank to be heard.
    ``cycle`` is one cycle of a deadlock, not the shortest: a rank's number is its host, the number of ranks and
    operations plus an instance's number is that instance, and what lies between says "all issued before".
    """

    outcome: int
    stands: Any
    low: Any
    high: Any
    issued: Any
    started: Any
    complete: Any
    cycle: Any
    events: int

    @property
    def outcomes(self) -> frozenset[str]:
        """The outcome set in words."""
        end = OUTCOMES[self.outcome & ~SILENT_MIX]
        return frozenset({end, "silent_mix"} if self.outcome & SILENT_MIX else {end})


def run(
    arrays: Arrays, *, width: int = 0, blocking: bool = False, first_use: bool = False, buffered: bool = False
) -> State:
    """Run the program to its end. ``width`` 0 is no limit; `settings` gives the arguments of a model."""
    a = arrays
    world, ops = a.world, len(a.op_instance)
    stands, low, high = (np.zeros(world, np.int64) for _ in range(3))
    issued, started = a.op_ptr[:-1].copy(), a.op_ptr[:-1].copy()
    complete = np.zeros(ops, np.bool_)
    cycle: Any = np.empty(0, np.int64)
    events, mismatch, mixed = _run(
        (a.event_ptr, a.event_code, a.event_a, a.event_b),
        (a.op_ptr, a.op_rank, a.op_instance, a.op_sig, a.op_label, a.op_send, a.op_group, a.op_member),
        (a.slot_ptr, a.slot_op, a.member_ptr, a.member_rank),
        (stands, low, high, issued, started, complete),
        (width, blocking, first_use, buffered, a.pairs),
    )
    outcome = MISMATCH if mismatch else 0
    if not outcome:
        stuck = stands != ENDED
        unfinished = any_incomplete(issued, complete, a.op_ptr)
        if not stuck.any() and not unfinished:
            outcome = COMPLETES
        else:
            cycle = _cycle(
                (a.op_ptr, a.op_rank, a.op_instance, a.op_group),
                (a.slot_ptr, a.slot_rank, a.slot_op, a.member_ptr, a.member_rank),
                (stands, low, high, issued, started, complete),
                _used(a, issued),
            )
            outcome = DEADLOCK if len(cycle) else MISSING
    outcome |= SILENT_MIX if mixed else 0
    return State(outcome, stands, low, high, issued, started, complete, cycle, int(events))


def settings(model: Any) -> dict[str, Any]:
    """`run`'s arguments for a `harness.model.progress.Model`."""
    return {
        "width": model.width or 0,
        "blocking": model.name == "host_blocking",
        "first_use": model.name == "first_use",
        "buffered": model.buffered,
    }


def any_incomplete(issued: Any, complete: Any, op_ptr: Any) -> bool:
    """Whether an issued operation is incomplete."""
    return bool(np.sum(issued - op_ptr[:-1]) != np.count_nonzero(complete))


def _used(a: Arrays, issued: Any) -> Any:
    """Which members have used their group."""
    used = np.zeros(len(a.member_rank), np.bool_)
    done = np.arange(len(a.op_instance)) < issued[a.op_rank] if len(a.op_rank) else np.zeros(0, np.bool_)
    places = a.op_member[done]
    used[places[places >= 0]] = True
    return used


@compiled
def _run(events: Any, ops: Any, shape: Any, state: Any, how: Any) -> Any:
    event_ptr, event_code, event_a, event_b = events
    op_ptr, op_rank, op_instance, op_sig, op_label, op_send, op_group, op_member = ops
    slot_ptr, slot_op, member_ptr, member_rank = shape
    stands, low, high, issued, started, complete = state
    width, blocking, first_use, buffered, pairs = how
    world, instances = len(event_ptr) - 1, len(slot_ptr) - 1
    at = event_ptr[:-1].copy()
    running, replay_low, replay_high = np.zeros(world, np.int64), np.zeros(world, np.int64), np.zeros(world, np.int64)
    arrived, first = np.zeros(instances, np.int32), np.full(instances, -1, np.int64)
    differs, labels_differ = np.zeros(instances, np.bool_), np.zeros(instances, np.bool_)
    unused, used = member_ptr[1:] - member_ptr[:-1], np.zeros(len(member_rank), np.bool_)
    synced = op_ptr[:-1].copy()  # all before it was waited for by an earlier synchronization
    told, heard = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    stack, stacked = np.empty(world, np.int64), np.ones(world, np.bool_)
    for i in range(world):
        stack[i] = world - 1 - i
    depth, count, mismatch, mixed = world, 0, False, False
    while depth:
        depth -= 1
        r = stack[depth]
        stacked[r] = False
        while True:
            # Start what the lane has room for, and complete what that completes.
            while started[r] < issued[r] and (width == 0 or running[r] < width):
                o = started[r]
                started[r] += 1
                running[r] += 1
                i = op_instance[o]
                arrived[i] += 1
                if first[i] < 0:
                    first[i] = o
                else:
                    if op_sig[o] != op_sig[first[i]]:
                        differs[i] = mismatch = True
                    labels_differ[i] |= op_label[o] != op_label[first[i]]
                whole = arrived[i] == slot_ptr[i + 1] - slot_ptr[i] and not differs[i]
                if buffered and op_send[o]:
                    complete[o] = True
                    running[r] -= 1
                if whole:
                    mixed |= labels_differ[i]
                    for s in range(slot_ptr[i], slot_ptr[i + 1]):
                        other = slot_op[s]
                        if not complete[other]:
                            complete[other] = True
                            q = op_rank[other]
                            running[q] -= 1
                            if q != r and not stacked[q]:
                                stacked[q] = True
                                stack[depth] = q
                                depth += 1
            # Does the host go on?
            here = stands[r]
            if here in (AWAITS, SYNCS):
                while low[r] < high[r] and complete[low[r]]:
                    low[r] += 1
                if low[r] < high[r]:
                    break
            elif here == HEARS:
                if told[high[r]] < heard[high[r]]:
                    break
            elif here == FIRST_USE:
                missing = False
                for o in range(low[r], high[r]):
                    missing |= op_group[o] >= 0 and unused[op_group[o]] > 0
                if missing:
                    break
            stands[r] = RUNS
            if replay_low[r] < replay_high[r]:
                o = replay_low[r]
                replay_low[r] += 1
                issued[r] += 1
                count += 1
                stands[r], low[r], high[r] = AWAITS, o, o + 1
                continue
            if at[r] == event_ptr[r + 1]:
                stands[r] = ENDED
                count += 1
                break
            code, x, y = event_code[at[r]], event_a[at[r]], event_b[at[r]]
            at[r] += 1
            if code == ISSUE:
                if blocking:
                    replay_low[r], replay_high[r] = x, x + y
                    continue
                issued[r] += y
                count += y
                if first_use:
                    fresh = False
                    for o in range(x, x + y):
                        m = op_member[o]
                        if m >= 0 and not used[m]:
                            used[m] = True
                            fresh = True
                            g = op_group[o]
                            unused[g] -= 1
                            if unused[g] == 0:
                                for k in range(member_ptr[g], member_ptr[g + 1]):
                                    q = member_rank[k]
                                    if q != r and not stacked[q]:
                                        stacked[q] = True
                                        stack[depth] = q
                                        depth += 1
                    if fresh:
                        stands[r], low[r], high[r] = FIRST_USE, x, x + y
            elif code == WAIT:
                count += 1
                stands[r], low[r], high[r] = AWAITS, x, y
            elif code == SYNC:
                count += 1
                stands[r], low[r], high[r] = SYNCS, synced[r], issued[r]
                synced[r] = issued[r]
            elif code == TELL:
                count += 1
                told[x] += 1
                if y != r and not stacked[y]:
                    stacked[y] = True
                    stack[depth] = y
                    depth += 1
            else:
                count += 1
                heard[x] += 1
                stands[r], low[r], high[r] = HEARS, y, x
    return count, mismatch, mixed


@compiled
def _cycle(operations: Any, shape: Any, state: Any, used: Any) -> Any:
    """A cycle among the waits of a settled run, empty if there is none: depth first, each node and edge once.

    Nodes are hosts, then for each operation "everything incomplete of its rank up to it", then instances.
    """
    op_ptr, op_rank, op_instance, op_group = operations
    slot_ptr, slot_rank, slot_op, member_ptr, member_rank = shape
    stands, low, high, issued, started, complete = state
    world, ops, instances = len(op_ptr) - 1, len(op_instance), len(slot_ptr) - 1
    nodes = world + ops + instances
    colour, cursor = np.zeros(nodes, np.int8), np.zeros(nodes, np.int64)
    path = np.empty(nodes, np.int64)
    for root in range(world + ops):
        if colour[root] or (root < world and stands[root] == ENDED):
            continue
        if root >= world and (complete[root - world] or root - world >= issued[op_rank[root - world]]):
            continue
        path[0], depth = root, 1
        colour[root] = 1
        while depth:
            node = path[depth - 1]
            k = cursor[node]
            cursor[node] += 1
            target, over = -1, False
            if node < world:
                r = node
                if stands[r] == AWAITS or stands[r] == SYNCS:
                    over = low[r] + k >= high[r]
                    if not over and not complete[low[r] + k]:
                        target = world + ops + op_instance[low[r] + k]
                elif stands[r] == HEARS:
                    over = k > 0
                    if not over and stands[low[r]] != ENDED:
                        target = low[r]
                else:
                    o = low[r]
                    while o < high[r]:
                        size = member_ptr[op_group[o] + 1] - member_ptr[op_group[o]] if op_group[o] >= 0 else 0
                        if k < size:
                            break
                        k -= size
                        o += 1
                    over = o == high[r]
                    if not over:
                        m = member_ptr[op_group[o]] + k
                        if not used[m] and stands[member_rank[m]] != ENDED:
                            target = member_rank[m]
            elif node < world + ops:
                o = node - world
                over = k > 1
                if k == 0 and not complete[o]:
                    target = world + ops + op_instance[o]
                elif k == 1 and o > op_ptr[op_rank[o]]:
                    target = world + o - 1
            else:
                i = node - world - ops
                s = slot_ptr[i] + k
                over = s >= slot_ptr[i + 1]
                if not over:
                    r, o = slot_rank[s], slot_op[s]
                    if o < 0 or o >= issued[r]:
                        if stands[r] != ENDED:
                            target = r
                    elif o >= started[r] and o > op_ptr[r]:
                        target = world + o - 1
            if over:
                colour[node] = 2
                depth -= 1
            elif target >= 0:
                if colour[target] == 1:
                    start = depth - 1
                    while path[start] != target:
                        start -= 1
                    return path[start:depth].copy()
                if colour[target] == 0:
                    colour[target] = 1
                    path[depth] = target
                    depth += 1
    return path[:0].copy()
