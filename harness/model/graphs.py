"""Cycles in directed graphs given by a successor function: whether there is one, and a shortest one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def components(nodes: Iterable[N], successors: Callable[[N], Iterable[N]]) -> list[list[N]]:
    """The strongly connected components that hold a cycle (Tarjan, without recursion; linear)."""
    index: dict[N, int] = {}
    low: dict[N, int] = {}
    on_stack: set[N] = set()
    stack: list[N] = []
    found: list[list[N]] = []
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(successors(root)))]
        loops: set[N] = set()
        while work:
            node, following = work[-1]
            for target in following:
                if target == node:
                    loops.add(node)
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(successors(target))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.append(member)
                        if member == node:
                            break
                    if len(members) > 1 or node in loops:
                        found.append(members[::-1])
    return found


def shortest_cycle(
    nodes: Sequence[N], successors: Callable[[N], Iterable[N]], *, starts: int | None = None, least: int = 1
) -> list[N] | None:
    """A shortest cycle through ``nodes``, as the nodes in order; None if there is none.

    Breadth first from every node that lies on a cycle, each search cut at the best length so far. With ``starts``,
    from that many nodes only: the cycle is then short rather than the shortest. No cycle has fewer nodes than
    ``least``.
    """
    best: list[N] | None = None
    for members in components(nodes, successors):
        inside = set(members)
        for start in members[:starts]:
            cycle = _cycle_through(start, successors, inside, len(best) if best else None)
            if cycle is not None:
                best = cycle
                if len(best) <= least:
                    return best
    return best


def _cycle_through(
    start: N, successors: Callable[[N], Iterable[N]], inside: set[N], limit: int | None
) -> list[N] | None:
    """The shortest cycle through ``start`` inside the set, if it is shorter than ``limit`` nodes."""
    parents: dict[N, N] = {}
    queue = deque([(start, 1)])
    while queue:
        node, length = queue.popleft()
        if limit is not None and length >= limit:
            return None
        for target in successors(node):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(parents[path[-1]])
                return path[::-1]
            if target in inside and target not in parents:
                parents[target] = node
                queue.append((target, length + 1))
    return None
