"""One drawn case: a world, its groups, its parameters and each rank's order; what it must lead to, and how to paste it.

Pure but for `outcome`, which runs the case on real ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.model.order import order_of
from harness.model.outcomes import outcomes
from harness.model.program import Call, Program, Statement, Wait
from harness.model.topology import WORLD, Topology
from harness.record.verdict import Verdict, verdict
from harness.scenario import Context, Scenario, perform
from harness.world import pool

from .body import gather_rounds
from .slots import Slot, gathers


@dataclass(frozen=True)
class Case:
    """``groups`` are made beside the world group; ``orders`` gives, per rank, the slots (by index) that it has, as
    its call of ``all_gather_coalesced`` is handed them.
    """

    world: int
    groups: Mapping[str, tuple[int, ...]]
    slots: tuple[Slot, ...]
    orders: tuple[tuple[int, ...], ...]

    @property
    def topology(self) -> Topology:
        """The world group and the drawn ones."""
        return Topology("drawn", self.world, {WORLD: tuple(range(self.world)), **self.groups})

    def program(self, *, fixed: bool) -> Program:
        """What the ranks issue and wait for, with or without the fix, as the models judge it."""
        topology = self.topology
        ranks: dict[int, Mapping[str, tuple[Statement, ...]]] = {}
        for rank, order in enumerate(self.orders):
            issued = gathers(self.slots, order, topology, fixed=fixed)
            calls = [Call((op,), handle=f"h{i}") for i, op in enumerate(issued)]
            ranks[rank] = {"main": (*calls, *(Wait(f"h{i}") for i in range(len(calls))))}
        made = tuple(topology.group(name) for name in topology.groups)
        return Program(self.world, made, ranks, name="drawn case")

    def predicted(self, model: str, *, fixed: bool) -> frozenset[str]:
        """What the progress model makes of it: ``{"completes"}`` or ``{"deadlock"}``."""
        return outcomes(self.program(fixed=fixed), model)

    def predicted_order(self, *, fixed: bool) -> str:
        """``consistent`` or ``cyclic``, from the drawn orders alone."""
        return order_of(self.program(fixed=fixed).histories()).verdict

    def as_test(self, backend: str, variant: str, verdict: str) -> str:
        """Source text of a test that runs this very case: paste it into any test file."""
        slots = "".join(f"            {slot!r},\n" for slot in self.slots)
        return (
            f"from {__name__} import Case, Slot, outcome\n\n\n"
            f"def test_gathers_of_{len({s.group for s in self.slots})}_groups_on_{self.world}_ranks():\n"
            f"    case = Case(\n"
            f"        world={self.world},\n"
            f"        groups={dict(self.groups)!r},\n"
            f"        slots=(\n{slots}        ),\n"
            f"        orders={self.orders!r},\n"
            f"    )\n"
            f"    assert outcome(case, {backend!r}, {variant!r}).verdict == {verdict!r}\n"
        )


def task(case: Case, variant: str) -> tuple[Scenario, Topology, str, str, dict[str, Any]]:
    """What `harness.scenario.perform` is handed for the case."""
    from . import scenario

    drawn = replace(scenario, body=_body, defaults={"slots": (), "orders": ()})
    return drawn, case.topology, "same", variant, {"slots": case.slots, "orders": case.orders}


def outcome(case: Case, backend: str, variant: str, *, limit: float = 60.0) -> Verdict:
    """Run the case on real ranks, in a standing world, and judge it from what was recorded."""
    drawn, *rest = task(case, variant)
    lines: list[dict[str, Any]] = []
    world = pool.get(case.world, backend, preload=drawn.preload)
    world.run(perform, drawn, *rest, limit=limit, sink=lines.append)
    return verdict(lines)


def _body(context: Context) -> dict[str, Any]:
    """Gather once, in the order drawn for this rank."""
    wanted = context.params["orders"][context.rank]
    slots = [Slot(*slot) for slot in context.params["slots"]]
    return gather_rounds(context, slots, lambda params: sorted(params, key=lambda p: wanted.index(p.ds_id)), rounds=1)
