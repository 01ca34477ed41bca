"""Random programs run for real, and held to what the model allows."""

from __future__ import annotations

from collections import Counter

from harness import backends
from harness.model.operation import Group
from harness.model.program import Call, Program
from harness.programs.run import run_program
from harness.world import pool
from tests.explorer.generate import program


def left_out(candidate: Program, backend: str) -> str:
    """Why torch, or the engine behind it, can't be asked to do this; empty where it can."""
    peers = backends.get(backend).spec.transport != "oneccl"
    for rank in range(candidate.world):
        made = set(candidate.groups)
        destroyed: set[Group] = set()
        threads = len(candidate.threads(rank))
        for statements in candidate.threads(rank).values():
            for call in statements:
                if not isinstance(call, Call):
                    continue
                op = call.ops[0]
                if op.peer is not None and not peers:
                    return "a send or a recv: oneCCL has none on host buffers"
                if any(op.peer == rank for op in call.ops):
                    return "a send to oneself"
                if len({op.group for op in call.ops}) > 1:
                    return "a batch on several groups"
                if op.kind == "barrier" and (op.n != 8 or op.dtype != "float32"):
                    return "a barrier with data"
                if op.group in (made if op.kind == "new_group" else destroyed):
                    return "a group used again once it is destroyed, or made twice"
                if op.kind == "new_group":
                    made.add(op.group)
                if op.kind == "destroy_group":
                    destroyed.add(op.group)
                    if threads > 1:
                        return "a group destroyed that another thread may still use"
    return ""


def agree(backend: str, count: int, first: int = 0) -> Counter[str]:
    """Run ``count`` random programs; every one must do what the model allows. Those left out don't count."""
    seen: Counter[str] = Counter()
    seed = first
    while sum(seen.values()) < count or not seen:
        candidate = Program.parse(program(seed))
        if not left_out(candidate, backend):
            ran = run_program(candidate, pool.get(candidate.world, backend), limit=10)
            assert ran.agrees, (seed, sorted(ran.seen), sorted(ran.allowed), ran.verdict.explanation, program(seed))
            seen[ran.verdict.verdict] += 1
        seed += 1
    return seen
