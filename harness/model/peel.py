"""The order verdict compiled: take away, from the front and then from the back, what lies on no cycle.

An instance can go once every rank that has a part of it has nothing before it; the order in which they go serves
every rank. What is left after both ways lies on cycles or between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.model.fast import compiled


def core(op_ptr: Any, op_step: Any, op_instance: Any, part_ptr: Any, part_op: Any) -> tuple[Any, Any]:
    """``(order, core)``: instances in an order all ranks could follow, as far as it goes; those on or between cycles.

    ``op_step`` numbers calls: operations of one batch share a number and have no order. ``part_op`` lists each
    instance's operations, instance i's from ``part_ptr[i]`` on. Linear.
    """
    op_rank = np.repeat(np.arange(len(op_ptr) - 1), np.diff(op_ptr))
    keep = np.ones(len(part_ptr) - 1, np.bool_)
    order = _peel(op_ptr, op_rank, op_step, op_instance, part_ptr, part_op, keep, False)
    keep[order] = False
    if keep.any():
        keep[_peel(op_ptr, op_rank, op_step, op_instance, part_ptr, part_op, keep.copy(), True)] = False
    return order, np.flatnonzero(keep)


@compiled
def _peel(
    op_ptr: Any, op_rank: Any, op_step: Any, op_instance: Any, part_ptr: Any, part_op: Any, keep: Any, backward: bool
) -> Any:
    world, instances = len(op_ptr) - 1, len(part_ptr) - 1
    at = np.empty(world, np.int64)
    left = np.zeros(world, np.int64)
    exposed = np.zeros(instances, np.int64)
    queue = np.empty(instances, np.int64)
    head, tail = 0, 0
    todo = np.empty(world, np.int64)
    depth = 0
    for r in range(world):
        at[r] = op_ptr[r + 1] - 1 if backward else op_ptr[r]
        todo[depth] = world - 1 - r
        depth += 1
    while True:
        while depth:  # expose the next call of each rank that has nothing exposed
            depth -= 1
            r = todo[depth]
            while left[r] == 0 and op_ptr[r] <= at[r] < op_ptr[r + 1]:
                step = op_step[at[r]]
                while op_ptr[r] <= at[r] < op_ptr[r + 1] and op_step[at[r]] == step:
                    i = op_instance[at[r]]
                    at[r] += -1 if backward else 1
                    if keep[i]:
                        left[r] += 1
                        exposed[i] += 1
                        if exposed[i] == part_ptr[i + 1] - part_ptr[i]:
                            queue[tail] = i
                            tail += 1
        if head == tail:
            return queue[:tail].copy()
        i = queue[head]
        head += 1
        for p in range(part_ptr[i], part_ptr[i + 1]):
            r = op_rank[part_op[p]]
            left[r] -= 1
            if left[r] == 0:
                todo[depth] = r
                depth += 1


@compiled
def buckets(owner: Any, owners: int) -> tuple[Any, Any]:
    """``(ptr, members)``: the indices with owner i, ascending, are ``members[ptr[i]:ptr[i + 1]]``. Linear."""
    ptr = np.zeros(owners + 1, np.int64)
    for o in owner:
        ptr[o + 1] += 1
    for i in range(owners):
        ptr[i + 1] += ptr[i]
    place, members = ptr[:-1].copy(), np.empty(len(owner), np.int64)
    for i in range(len(owner)):
        members[place[owner[i]]] = i
        place[owner[i]] += 1
    return ptr, members
