"""Which names a cell may hold: asks the registries of scenarios, backends, topologies, arrivals and variants."""

from __future__ import annotations

from functools import cache

from harness import backends
from harness import scenario as scenarios
from harness.errors import UsageError
from harness.matrix.cell import Cell
from harness.model.arrival import arrival
from harness.model.topology import topology


def check_cell(cell: Cell) -> tuple[str, str] | None:
    """The field of the cell that names nothing, and what is accepted; None where all is well."""
    fault = _fault("scenario", cell.scenario) or _fault("backend", cell.backend) or _fault("arrival", cell.arrival)
    if fault:
        return fault
    try:
        topology(cell.topology, cell.world)
    except UsageError as error:
        return "topology", str(error)
    scenario = scenarios.scenario(cell.scenario)
    if cell.variant not in scenario.variants:
        return "variant", f"{cell.variant!r} is unknown; {cell.scenario} accepts: {', '.join(scenario.variants)}"
    try:
        scenario.parameters(dict(cell.params))
    except UsageError as error:
        return "params", str(error)
    return None


@cache
def _fault(field: str, value: str) -> tuple[str, str] | None:
    ask = {"scenario": scenarios.scenario, "backend": backends.get, "arrival": arrival}[field]
    try:
        ask(value)
    except UsageError as error:
        return field, str(error)
    return None
