"""Random orders over random groups, as many as one likes: no stall, no wrong value, and the verdict that was predicted.

One example is one task of a standing world: groups are made, every rank issues the same gathers in an order of its
own, and waits for them. The model, fed the drawn orders before anything runs, says whether that hangs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness import backends
from harness.model.operation import Group, Operation
from harness.model.progress import Progress
from harness.model.proof import outcome
from harness.record.lines import Line
from harness.record.verdict import Verdict, verdict
from harness.testing.hazards import gather_in_order, pair
from harness.world import pool


class Example(NamedTuple):
    """``groups``: world ranks of each; ``orders``: for each rank, which gathers (by group) it issues, in order."""

    world: int
    groups: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    blocking: bool


def draw(world: int, seed: int) -> Example:
    """An example: up to four groups of any size, up to eight gathers, and orders that differ a little or a lot."""
    rng = random.Random(f"{world}:{seed}")
    ranks = range(world)
    groups = tuple(
        tuple(sorted(rng.sample(ranks, rng.randint(min(2, world), world)))) for _ in range(rng.randint(1, 4))
    )
    calls = [rng.randrange(len(groups)) for _ in range(rng.randint(1, 8))]
    swaps = rng.choice((0, 0, 1, 1, 2, 8))
    orders = []
    for rank in ranks:
        mine = [group for group in calls if rank in groups[group]]
        for _ in range(swaps if len(mine) > 1 and rng.random() < 0.5 else 0):
            at = rng.randrange(len(mine) - 1)
            mine[at], mine[at + 1] = mine[at + 1], mine[at]
        orders.append(tuple(mine))
    return Example(world, groups, tuple(orders), rng.random() < 0.2)


def predict(example: Example, model: str) -> str:
    """What the model makes of the example, without running it."""
    progress = Progress(model, example.world)
    names = [Group(f"g{k}", ranks) for k, ranks in enumerate(example.groups)]
    todo: list[list[Any]] = []
    for order in example.orders:
        steps: list[Any] = []
        for group in order:
            steps += [names[group], None] if example.blocking else [names[group]]
        todo.append(steps if example.blocking else [*steps, *[None] * len(order)])
    parts: list[list[Any]] = [[] for _ in todo]
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(todo):
            while steps and not progress.blocked(rank):
                moved = True
                step = steps.pop(0)
                if step is None:
                    progress.wait(rank, [parts[rank].pop(0)])
                else:
                    parts[rank] += progress.issue(rank, [Operation("all_gather", step)])
    for rank in range(example.world):
        if not progress.blocked(rank):
            progress.end(rank)
    return next(iter(outcome(progress)))


def body(groups: Sequence[Sequence[int]], orders: Sequence[Sequence[int]], blocking: bool) -> None:
    """One rank's part of an example."""
    import torch.distributed as dist

    made = [pair(*ranks, name=f"g{k}") for k, ranks in enumerate(groups)]
    gather_in_order([(f"g{group}", made[group]) for group in orders[dist.get_rank()]], blocking=blocking)


def run(example: Example, backend: str, limit: float = 20.0) -> Verdict:
    """The example for real."""
    evidence: list[Line] = []
    pool.get(example.world, backend).run(
        body, example.groups, example.orders, example.blocking, sink=evidence.append, limit=limit
    )
    return verdict(evidence)


def check(world: int, backend: str, seed: int) -> str | None:
    """A line if the run of the seed's example ended in another verdict than predicted; else None."""
    example = draw(world, seed)
    expected = predict(example, backends.get(backend).spec.model)
    found = run(example, backend)
    if found.verdict == expected:
        return None
    return f"world {world}, seed {seed}: {found.verdict}, expected {expected}: {example}\n{found.explanation}"
