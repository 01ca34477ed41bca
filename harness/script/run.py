"""One run of a script: evidence, verdict, and what a person reads of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import WorldError
from harness.matrix.cell import Cell, make_cell
from harness.matrix.machine import hardware, versions
from harness.matrix.plan import Expectation
from harness.matrix.result import CellResult
from harness.model import explain
from harness.model.order import TooManyAssignments, order_of
from harness.record import lines
from harness.record.evidence import Evidence, read
from harness.record.verdict import Verdict, histories, verdict
from harness.report.lanes import lanes_of
from harness.report.legend import legend
from harness.report.write import write_html
from harness.script.launcher import Script
from harness.world.world import World


@dataclass(frozen=True)
class Outcome:
    """What came of a script, and the text that says it."""

    verdict: str
    order: str
    text: str


def run_script(
    program: Sequence[str],
    words: Sequence[str],
    backend: str,
    *,
    nproc: int | None,
    limit: float,
    folder: Path,
    again: str,
) -> Outcome:
    """Run ``program`` as ranks on ``backend``; its evidence goes to ``folder``. ``again`` is the call that does so."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with Script(program, backend, nproc, limit) as script:
        try:
            cell = _cell(words, backend, script.launch())
            path = folder / f"{cell.id}.jsonl"
            with Evidence(path, cell.to_json(), versions(), hardware()) as evidence:
                seconds = _watch(script, backend, limit, evidence)
                written = read(path)
                found = verdict(written)
                expectation = Expectation(("completes",))
                result = CellResult(
                    cell, found.verdict, found.order, seconds, expectation, found.explanation, "", path.name, again
                )
                evidence.write({"type": "result", **result.to_json()})
        except WorldError as error:
            return Outcome("crashed", "unknown", f"crashed before there was a world\n\n{error}")
    size = f"{cell.world} rank{'s' if cell.world > 1 else ''}"
    head = f"{found.verdict}, order {found.order}, {seconds:.2f} s; {size} on {legend([backend])[0]}"
    drawn = lanes_of(path) if found.verdict != "completes" or found.order == "cyclic" else ""
    parts = [
        head,
        found.explanation,
        *_hazard(found, written),
        drawn,
        f"evidence: {path}\nreport:   {write_html(folder)}\nagain:    {again}",
    ]
    return Outcome(found.verdict, found.order, "\n" + "\n\n".join(part for part in parts if part))


def _cell(words: Sequence[str], backend: str, size: int) -> Cell:
    """A script's run as a cell, so that every report can show it."""
    name = next((Path(word).stem for word in words if word.endswith(".py")), Path(words[-1]).name)
    return make_cell(
        {}, scenario=name, backend=backend, world=size, topology="script", arrival="natural", variant="installed"
    )


def _watch(script: Script, backend: str, limit: float, evidence: Evidence) -> float:
    """The run itself; returns its seconds. Exit codes that say more than the ranks did are added to the evidence."""
    with World(script.size, backend, launcher=script) as world:
        run = world.run(_body, limit=limit, sink=evidence.write)
        if run.tainted:
            return run.seconds
        for rank, how in script.finish(world).items():
            ranks = [rank] if rank >= 0 else range(world.size)
            if how != "exit 0" and all(run.ranks[r].ok for r in ranks):
                error = {"type": "SystemExit", "message": _ended(rank, how), "traceback": ""}
                evidence.write(lines.rank_outcome(max(rank, 0), False, error, exit=how))
    return run.seconds


def _body() -> None:
    """A script's ranks run the script, not this."""


def _ended(rank: int, how: str) -> str:
    if not how:
        return "its script was over, but its process did not end"
    return f"its process ended with {how}" if rank >= 0 else f"the launcher ended with {how}"


def _hazard(found: Verdict, evidence: Sequence[lines.Line]) -> list[str]:
    """What is wrong with the order, even where the run completed: the cycle, the first difference, a way out."""
    if found.order != "cyclic":
        return []
    issued = histories(evidence)
    try:
        order = order_of(issued)
    except TooManyAssignments as error:
        return [str(error)]
    parts = [explain.order(order, issued)]
    ranks = list(dict.fromkeys(link.rank for link in order.cycle))
    if len(ranks) == 2:
        parts.append(explain.side_by_side(issued, *ranks))
    return [*parts, explain.remedy(issued)]
