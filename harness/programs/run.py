"""A program on a world, compared with what the model says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.model.outcomes import outcomes
from harness.model.program import Program
from harness.programs.body import Result, body
from harness.record.verdict import Verdict, verdict
from harness.world.world import World


@dataclass(frozen=True)
class Ran:
    """What a program did. ``allowed`` are the model's outcomes, ``seen`` what happened.

    ``results`` are each rank's, None where it failed; ``lines`` the evidence.
    """

    verdict: Verdict
    seen: frozenset[str]
    allowed: frozenset[str]
    results: tuple[list[Result] | None, ...]
    errors: tuple[str, ...]
    lines: tuple[dict[str, Any], ...]
    seconds: float
    real: bool

    @property
    def agrees(self) -> bool:
        """Whether the model's set contains what happened.

        A real engine given calls that don't match may do anything: abort, hang, fail, or take one for the other.
        """
        return self.seen <= self.allowed or (self.real and "mismatch" in self.allowed)


def run_program(
    program: Program,
    world: World,
    *,
    limit: float = 60.0,
    progress: Callable[[float, list[int]], None] | None = None,
) -> Ran:
    """Run the program on a world of its size. Judged only once nothing can move, as outcomes are defined."""
    lines: list[dict[str, Any]] = []
    run = world.run(body, program, limit=limit, sink=lines.append, settle=True, progress=progress)
    found = verdict(lines)
    spec = world.spec
    seen = {found.verdict} | ({"silent_mix"} if found.mixed else set())
    if found.verdict == "silent_mix":
        seen.add("completes")
    return Ran(
        verdict=found,
        seen=frozenset(seen),
        allowed=outcomes(program, spec.model, early=spec.early),
        results=tuple(outcome.value if outcome.ok else None for outcome in run.ranks),
        errors=tuple(o.error.message for o in run.ranks if o.error is not None),
        lines=tuple(lines),
        seconds=run.seconds,
        real=not spec.granting,
    )


def mixed_results(ran: Ran, program: Program) -> list[str]:
    """Results that hold data of another label than their own, in words, as the values themselves show it."""
    found = []
    for rank, results in enumerate(ran.results):
        for line, op, labels in results or ():
            if isinstance(labels, dict) and len(labels) > 1:
                mix = " + ".join(f"{count} x {label}" for label, count in labels.items())
                found.append(f"rank {rank}, line {line}: {op} holds {mix}")
    return found
