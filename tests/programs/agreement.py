"""Random programs run for real, and held to what the model allows."""

from __future__ import annotations

from collections import Counter

from harness.model.operation import Group
from harness.model.program import Call, Program
from harness.programs.run import run_program
from harness.world import pool
from tests.explorer.generate import program


def runnable(candidate: Program, *, plain: bool = False) -> bool:
    """Whether torch can do it: no sends to oneself, batches on one group, plain barriers, and no group's name used
    again once it is destroyed. ``plain`` leaves out more: threads, and calls with a root or a peer, which an engine may
    end on one side before the other has come."""
    if plain and any(len(candidate.threads(rank)) > 1 for rank in range(candidate.world)):
        return False
    for rank in range(candidate.world):
        made = set(candidate.groups)
        destroyed: set[Group] = set()
        threads = len(candidate.threads(rank))
        for statements in candidate.threads(rank).values():
            for call in statements:
                if not isinstance(call, Call):
                    continue
                if plain and (call.ops[0].peer, call.ops[0].root) != (None, None):
                    return False
                if any(op.peer == rank for op in call.ops) or len({op.group for op in call.ops}) > 1:
                    return False
                op = call.ops[0]
                if op.kind == "barrier" and (op.n != 8 or op.dtype != "float32"):
                    return False
                if op.group in (made if op.kind == "new_group" else destroyed):
                    return False
                if op.kind == "new_group":
                    made.add(op.group)
                if op.kind == "destroy_group":
                    destroyed.add(op.group)
                    if threads > 1:  # another thread may still use it
                        return False
    return True


def agree(backend: str, count: int, first: int = 0, *, plain: bool = False) -> Counter[str]:
    """Run ``count`` random programs; every one must do what the model allows."""
    seen: Counter[str] = Counter()
    seed = first
    while sum(seen.values()) < count or not seen:
        candidate = Program.parse(program(seed))
        if runnable(candidate, plain=plain):
            ran = run_program(candidate, pool.get(candidate.world, backend), limit=10)
            assert ran.agrees, (seed, sorted(ran.seen), sorted(ran.allowed), ran.verdict.explanation, program(seed))
            seen[ran.verdict.verdict] += 1
        seed += 1
    return seen
