"""What a scenario is, and how a rank performs one.

A scenario is a package ``scenarios.NAME`` whose attribute ``scenario`` is a `Scenario`: the body that every rank
runs, and over which topologies, arrivals, variants and worlds it makes sense. `perform` is what a rank is handed:
it creates the topology's groups, enters the variant, runs the body, and leaves the world as it found it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.model.arrival import arrival
from harness.model.topology import WORLD, Topology
from harness.variants import fix

Item = TypeVar("Item")


@dataclass(frozen=True)
class Context:
    """What one rank's body is told. Process groups exist from `perform` on; plain data until then, so it travels."""

    rank: int
    topology: Topology
    arrival: str = "same"
    variant: str = "installed"
    params: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Any] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.topology.world

    def order(self, items: Sequence[Item], group_of: Callable[[Item], str]) -> list[Item]:
        """The items in this rank's order; ``group_of`` gives the name of an item's group."""
        return arrival(self.arrival)(items, self.rank, self.topology, group_of)


@dataclass(frozen=True)
class Scenario:
    """One subject that can be reproduced. ``body(context)`` runs in every rank; what it returns must pickle.

    ``requires`` are the packages without which it can't run; ``preload`` modules worth importing before ranks are
    forked; ``fix`` the fix (`harness.variants`) whose variants it has, or none; ``defaults`` the parameters that a
    cell may override, with the values they have otherwise; ``lacks(parameters)`` says what else is missing here.
    """

    name: str
    about: str
    body: Callable[[Context], Any]
    topologies: tuple[str, ...] = ("single",)
    arrivals: tuple[str, ...] = ("same",)
    worlds: tuple[int, ...] = (2, 4, 8)
    fix: str | None = None
    requires: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    lacks: Callable[[Mapping[str, Any]], str | None] = lambda params: None

    def why_not(self, given: Mapping[str, Any]) -> str | None:
        """Why it can't run on this machine with these parameters, or None: what is missing, by name."""
        for package in self.requires:
            if importlib.util.find_spec(package) is None:
                return f"{self.name} needs the package {package}, which is not installed"
        return self.lacks(self.parameters(given))

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants it can run as."""
        return tuple(v.name for v in fix(self.fix).variants) if self.fix else ("installed",)

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with ``given`` on top; UsageError for a key that is no parameter."""
        unknown = sorted(set(given) - set(self.defaults))
        if unknown:
            accepted = ", ".join(self.defaults) or "none"
            raise UsageError(f"scenario {self.name}: parameter {unknown[0]!r} is unknown; accepted: {accepted}")
        return {**self.defaults, **given}


def perform(scenario: Scenario, topology: Topology, arrival: str, variant: str, params: Mapping[str, Any]) -> Any:
    """Run the scenario's body in this rank, over the default process group that exists; returns what it returns.

    Every rank of the world calls this. The topology's groups are created in its order by every rank, members or
    not, and destroyed at the end, however the body ends, so that a standing world can serve the next cell.
    """
    import torch.distributed as dist

    rank = dist.get_rank()
    with ExitStack() as stack:
        groups = {}
        for name, ranks in topology.groups.items():
            if name == WORLD:
                groups[name] = dist.group.WORLD
                continue
            made = dist.new_group(list(ranks), group_desc=name)
            if rank in ranks:
                stack.callback(_destroy, made)
                groups[name] = made
        if scenario.fix:
            stack.enter_context(fix(scenario.fix).variant(variant).apply())
        context = Context(rank, topology, arrival, variant, scenario.parameters(params), groups)
        return scenario.body(context)


def _destroy(group: Any) -> None:
    """Forget a process group, as a callback that needs no torch until it is called."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group(group)


def scenario(name: str) -> Scenario:
    """The scenario ``scenarios.NAME``; UsageError names those there are."""
    known = names()
    if name not in known:
        raise UsageError(f"scenario {name!r} is unknown; accepted: {', '.join(known)}")
    found = importlib.import_module(f"scenarios.{name}").scenario
    assert isinstance(found, Scenario)
    return found


def names() -> list[str]:
    """Names of all scenarios, sorted: the packages in ``scenarios``."""
    import scenarios

    return sorted(m.name for m in pkgutil.iter_modules(scenarios.__path__) if m.ispkg)
