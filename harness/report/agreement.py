"""Which progress models a real engine's results agree with, case by case."""

from __future__ import annotations

from collections.abc import Sequence

from harness import backends
from harness.matrix.cell import Cell
from harness.matrix.result import CellResult

#: Verdicts of a run that did not come through. An engine may end a hang by an error of its own.
_STUCK = ("deadlock", "missing", "mismatch", "timeout", "crashed")
#: Orders that differ from run to run: two runs of a case are not the same case.
_BY_CHANCE = ("natural",)


def agreement(results: Sequence[CellResult]) -> list[str]:
    """A line for each real engine that ran cases which models ran too: how often both came through, or both did not."""
    kinds: dict[tuple[Cell, str], bool] = {}
    for result in results:
        came_through = _kind(result)
        if came_through is not None and result.cell.arrival not in _BY_CHANCE:
            kinds[_case(result.cell), result.cell.backend] = came_through
    names = list(dict.fromkeys(backend for _, backend in kinds))
    models = [name for name in names if backends.get(name).spec.granting]
    return [line for name in names if name not in models and (line := _line(name, models, kinds))]


def _line(engine: str, models: Sequence[str], kinds: dict[tuple[Cell, str], bool]) -> str:
    counts = {}
    for model in models:
        both = [case for case, name in kinds if name == engine and (case, model) in kinds]
        if both:
            counts[model] = (sum(kinds[case, engine] == kinds[case, model] for case in both), len(both))
    if not counts:
        return ""
    full = [f"{model} ({n} cases)" for model, (same, n) in counts.items() if same == n]
    part = [f"{model} in {n - same} of {n}" for model, (same, n) in counts.items() if same < n]
    words = [f"agrees with {' and '.join(full)}"] if full else []
    return f"{engine}: " + "; ".join([*words, *([f"differs from {', '.join(part)}"] if part else [])])


def _case(cell: Cell) -> Cell:
    """The cell without its backend."""
    return Cell(cell.scenario, "", cell.world, cell.topology, cell.arrival, cell.variant, cell.params)


def _kind(result: CellResult) -> bool | None:
    """Whether the cell came through; None where it says nothing about waiting."""
    if result.verdict in ("completes", "silent_mix", "wrong_values"):
        return True
    return False if result.verdict in _STUCK else None
