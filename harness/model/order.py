"""The order verdict: whether one order of all instances serves every rank, whatever the progress model.

The relation is "issued before", in each thread of each rank, united over the world. A cycle through two or more
instances is a hazard even where the run completed. It is looked for over all groups at once: with three ranks and
three pairwise groups no two ranks disagree about two groups, and yet all three can wait in a ring.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from harness.errors import HarnessError
from harness.model.graphs import components, shortest_cycle
from harness.model.operation import InstanceKey, Operation, key_of, stream_of

#: What each thread of each rank issued: one tuple a call, longer for a batch.
Histories = Mapping[int, Mapping[str, Sequence[tuple[Operation, ...]]]]
#: The instance of each call, thread by thread, in the same shape.
Keys = dict[tuple[int, str], list[tuple[InstanceKey, ...]]]

#: More ways for the threads of one rank to share its groups than this are not followed.
MAX_ASSIGNMENTS = 100_000
# With more instances on cycles than this, the cycle shown is a short one instead of the shortest.
_EXACT = 5_000


class TooManyAssignments(HarnessError):
    """Threads share groups in more ways than are followed; nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Before:
    """On ``rank``, ``first`` was issued before ``then``; ``at`` are their places in the thread's calls."""

    rank: int
    thread: str
    first: InstanceKey
    then: InstanceKey
    at: tuple[int, int]


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """``consistent``, or ``cyclic`` with a shortest cycle: each link one rank's order, the last closing the ring."""

    verdict: str
    cycle: tuple[Before, ...] = ()


def order_of(histories: Histories) -> OrderVerdict:
    """The verdict over all histories; cyclic if any interleaving of threads makes it so.

    Linear in the number of calls where no two threads of a rank share a group, apart from finding the shortest
    cycle where there is one. Raises TooManyAssignments.
    """
    for keys in assignments(histories):
        cycle = _cycle(keys)
        if cycle:
            return OrderVerdict("cyclic", tuple(cycle))
    return OrderVerdict("consistent")


# --- which instance each call belongs to --------------------------------------------------------------------


def assignments(histories: Histories) -> Iterator[Keys]:
    """The ways calls can belong to instances: one, unless threads of a rank share a group, a pair or creations."""
    per_rank = [list(_rank_assignments(rank, threads)) for rank, threads in histories.items()]
    for choice in product(*per_rank):
        yield {thread: calls for rank_keys in choice for thread, calls in rank_keys.items()}


def _rank_assignments(rank: int, threads: Mapping[str, Sequence[tuple[Operation, ...]]]) -> Iterator[Keys]:
    shared = _shared(threads)
    if not shared:
        yield _number(rank, threads, [(name, at) for name, calls in threads.items() for at in range(len(calls))])
        return
    seen: set[Hashable] = set()
    for count, merge in enumerate(_merges(threads, shared)):
        if count == MAX_ASSIGNMENTS:
            raise TooManyAssignments(
                f"rank {rank}: its threads share {len(shared)} groups or pairs in more than {MAX_ASSIGNMENTS} ways"
            )
        keys = _number(rank, threads, merge)
        token = tuple(tuple(calls) for calls in keys.values())
        if token not in seen:
            seen.add(token)
            yield keys


def _shared(threads: Mapping[str, Sequence[tuple[Operation, ...]]]) -> set[Hashable]:
    """The streams that more than one thread of the rank issues on."""
    owners: dict[Hashable, set[str]] = {}
    if len(threads) == 1:
        return set()
    for name, calls in threads.items():
        for call in calls:
            for op in call:
                owners.setdefault(stream_of(op), set()).add(name)
    return {stream for stream, names in owners.items() if len(names) > 1}


def _merges(
    threads: Mapping[str, Sequence[tuple[Operation, ...]]], shared: set[Hashable]
) -> Iterator[list[tuple[str, int]]]:
    """The merges of the threads' calls, where calls that share nothing go at once."""
    lengths = {name: len(calls) for name, calls in threads.items()}
    pending: list[tuple[dict[str, int], list[tuple[str, int]]]] = [(dict.fromkeys(lengths, 0), [])]
    while pending:
        at, merge = pending.pop()
        ready = []
        for name, length in lengths.items():
            while at[name] < length and not any(stream_of(op) in shared for op in threads[name][at[name]]):
                merge.append((name, at[name]))
                at[name] += 1
            if at[name] < length:
                ready.append(name)
        if not ready:
            yield merge
        pending += ((at | {name: at[name] + 1}, [*merge, (name, at[name])]) for name in ready)


def _number(
    rank: int, threads: Mapping[str, Sequence[tuple[Operation, ...]]], merge: Sequence[tuple[str, int]]
) -> Keys:
    counts: dict[Hashable, int] = {}
    keys: Keys = {(rank, name): [()] * len(calls) for name, calls in threads.items()}
    for name, at in merge:
        call = []
        for op in threads[name][at]:
            stream = stream_of(op)
            number = counts[stream] = counts.get(stream, -1) + 1
            call.append(key_of(rank, op, number))
        keys[rank, name][at] = tuple(call)
    return keys


# --- the graph ----------------------------------------------------------------------------------------------

# A call of several operations (a batch) stands between two virtual nodes, so that the graph stays linear.
_Node = Any


def _cycle(keys: Keys) -> list[Before]:
    """A shortest cycle through two or more instances, or nothing."""
    after: dict[_Node, dict[_Node, None]] = {}
    for thread, calls in keys.items():
        for at, (call, following) in enumerate(pairwise(calls)):
            if len(call) == len(following) == 1:
                after.setdefault(call[0], {})[following[0]] = None
                continue
            gate = (thread, at)
            for key in call:
                after.setdefault(key, {})[gate] = None
            after.setdefault(gate, {}).update(dict.fromkeys(following))
    nodes = list(after)
    found = [
        part
        for part in components(nodes, lambda node: after.get(node, ()))
        if sum(isinstance(node, InstanceKey) for node in part) > 1
    ]
    if not found:
        return []
    return _shortest(keys, {node for part in found for node in part if isinstance(node, InstanceKey)})


def _shortest(keys: Keys, inside: set[InstanceKey]) -> list[Before]:
    """The shortest cycle among the instances on cycles, with "issued before" taken transitively on each thread.

    A ring of n ranks then has n links, however many calls each rank issued in between.
    """
    places: dict[InstanceKey, list[tuple[tuple[int, str], int]]] = {}
    held: dict[tuple[int, str], list[tuple[int, InstanceKey]]] = {}
    for thread, calls in keys.items():
        for at, call in enumerate(calls):
            for key in call:
                if key in inside:
                    places.setdefault(key, []).append((thread, at))
                    held.setdefault(thread, []).append((at, key))

    def later(key: InstanceKey) -> Iterator[InstanceKey]:
        for thread, at in places[key]:
            yield from (other for place, other in held[thread] if place > at and other != key)

    cycle = shortest_cycle(list(places), later, starts=None if len(places) <= _EXACT else 20, least=2)
    assert cycle is not None, "a component of several instances has a cycle"
    return [_link(places, first, then) for first, then in zip(cycle, cycle[1:] + cycle[:1], strict=True)]


def _link(
    places: Mapping[InstanceKey, list[tuple[tuple[int, str], int]]], first: InstanceKey, then: InstanceKey
) -> Before:
    for thread, at in places[first]:
        for other, place in places[then]:
            if other == thread and place > at:
                return Before(thread[0], thread[1], first, then, (at, place))
    raise AssertionError("no thread issued the one before the other")


# --- what ranks could do instead ----------------------------------------------------------------------------


def common_order(
    keys: Keys, segments: Mapping[tuple[int, str], Sequence[int]] | None = None
) -> list[InstanceKey] | None:
    """One order of all instances that every rank could follow, or None.

    Calls on one group keep their order on it. With ``segments`` (for each thread, the segment number of each call;
    calls of a later segment depend on a wait for an earlier one), so does what a wait separates. Ties are broken by
    the order in which the ranks issued, the lowest rank first.
    """
    first_seen: dict[InstanceKey, int] = {}
    after: dict[_Node, dict[_Node, None]] = {}
    for thread, calls in keys.items():
        for at, call in enumerate(calls):
            for key in call:
                first_seen.setdefault(key, len(first_seen))
                if segments is not None:
                    after.setdefault((thread, segments[thread][at]), {})[key] = None
                    after.setdefault(key, {})[thread, segments[thread][at] + 1] = None
        for number in range(segments[thread][-1] + 1 if segments is not None and calls else 0):
            after.setdefault((thread, number), {})[thread, number + 1] = None
    for key in first_seen:
        if key._replace(number=key.number - 1) in first_seen:
            after.setdefault(key._replace(number=key.number - 1), {})[key] = None
    return _topological(after, first_seen)


def _topological(
    after: Mapping[_Node, Mapping[_Node, None]], first_seen: Mapping[InstanceKey, int]
) -> list[InstanceKey] | None:
    """The instances in an order that respects ``after``, the first seen first; None if there is a cycle."""
    waiting: dict[_Node, int] = dict.fromkeys(first_seen, 0)
    for following in after.values():
        for node in following:
            waiting[node] = waiting.get(node, 0) + 1
    for node in after:
        waiting.setdefault(node, 0)
    # Virtual nodes go first: they hold nothing, and only open the way to what follows them.
    count = 0
    ready: list[tuple[int, int, _Node]] = []

    def push(node: _Node) -> None:
        nonlocal count
        count += 1
        heapq.heappush(ready, (first_seen.get(node, -1), count, node))

    for node, open_ in waiting.items():
        if not open_:
            push(node)
    done = []
    reached = 0
    while ready:
        node = heapq.heappop(ready)[2]
        reached += 1
        if isinstance(node, InstanceKey):
            done.append(node)
        for other in after.get(node, ()):
            waiting[other] -= 1
            if not waiting[other]:
                push(other)
    return done if reached == len(waiting) else None
