"""What happened, from evidence alone.

Nothing of the running process enters: the same file gives the same verdict on any machine, at any time. A proof that
was recorded counts, a rank's own failure counts, and a limit that was hit proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import errors
from harness.backends.spec import BackendSpec
from harness.model import explain
from harness.model.certificate import Certificate
from harness.model.operation import Operation
from harness.model.order import Histories, TooManyAssignments, order_of
from harness.record import lines
from harness.record.lines import Line
from harness.record.notes import context

COMPLETES, CRASHED, TIMEOUT, UNKNOWN = "completes", "crashed", "timeout", "unknown"
SILENT_MIX, WRONG_VALUES, MISSING = "silent_mix", "wrong_values", "missing"

#: Errors that a rank raises because its epoch was stopped: consequences, not causes.
_CONSEQUENCES = frozenset(
    cls.__name__
    for cls in (
        errors.DeadlockError,
        errors.MissingRankError,
        errors.MismatchError,
        errors.StoppedError,
        errors.RankDiedError,
    )
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``verdict`` as the project names them; ``order`` is consistent, cyclic or unknown, whatever the verdict.

    A run that was cut short has shown only part of its order: that part may be cyclic, else the order is unknown.
    ``explanation`` is text for a person. ``ranks`` are those whose own failure it was.
    """

    verdict: str
    order: str
    certificate: Certificate | None = None
    explanation: str = ""
    mixed: bool = False
    ranks: tuple[int, ...] = ()


def verdict(evidence: Iterable[Line]) -> Verdict:
    """The verdict of one cell's lines. ``unknown`` if they break off, or if judging them fails."""
    try:
        return _judge(list(evidence))
    except Exception as error:  # noqa: BLE001 - a checker that crashes knows nothing, and must not pass for an answer
        return Verdict(UNKNOWN, UNKNOWN, explanation=f"the evidence could not be judged: {error!r}")


def histories(evidence: Iterable[Line]) -> Histories:
    """What each thread of each rank issued, in its order."""
    found: dict[int, dict[str, list[tuple[Operation, ...]]]] = {}
    for line in evidence:
        if line["type"] == "issue":
            calls = found.setdefault(line["rank"], {}).setdefault(line["thread"], [])
            calls.append(tuple(lines.parse_operation(op) for op in line["ops"]))
    return found


def _judge(evidence: Sequence[Line]) -> Verdict:
    world = next((line for line in evidence if line["type"] == "world"), None)
    outcomes = {line["rank"]: line for line in evidence if line["type"] == "rank"}
    end = next((line for line in reversed(evidence) if line["type"] == "end"), None)
    order = _order(evidence)
    if world is None or end is None:
        return Verdict(UNKNOWN, order, explanation="the evidence breaks off: it has no end")
    proof = _proof(evidence)
    mixed = _mixed(evidence, world)
    first = _failed_before_proof(evidence)
    own = {rank: line for rank, line in outcomes.items() if rank in first or _failed_itself(line)}
    all_fine = len(outcomes) == world["world"] and all(line["ok"] for line in outcomes.values())

    def found(word: str, explanation: str, certificate: Certificate | None = None) -> Verdict:
        shown = order if word in (COMPLETES, SILENT_MIX, WRONG_VALUES) or order == "cyclic" else UNKNOWN
        return Verdict(word, shown, certificate, explanation, mixed, tuple(sorted(own)))

    if proof is not None and not (all_fine and not world["backend"]["granting"]):
        text = "\n".join(filter(None, (explain.certificate(proof), context(evidence, proof), _ended(outcomes, own))))
        if proof.outcome != MISSING or not own:
            return found(proof.outcome, text, proof)
        return found(_kind(own), f"{_failures(own)}\n\nThe others were left waiting.\n{text}", proof)
    if end["timed_out"]:
        return found(TIMEOUT, end.get("cause") or "stopped at its time limit, unproven: it may have been slow")
    if own:
        return found(_kind(own), _failures(own))
    if all_fine:
        return found(SILENT_MIX, _mix_text(evidence, world)) if mixed else found(COMPLETES, "every rank completed")
    stopped = [line["error"]["message"] for line in outcomes.values() if line.get("error")]
    return found(CRASHED if stopped else UNKNOWN, stopped[0] if stopped else "the evidence lacks ranks' outcomes")


def _order(evidence: Sequence[Line]) -> str:
    try:
        return order_of(histories(evidence)).verdict
    except TooManyAssignments:
        return UNKNOWN


def _proof(evidence: Sequence[Line]) -> Certificate | None:
    """The last proof recorded; on a real engine a later event may have taken an earlier one back."""
    last = next((line for line in reversed(evidence) if line["type"] == "certificate"), None)
    if last is None or last["certificate"] is None:
        return None
    return Certificate.from_json(last["certificate"])


# --- ranks --------------------------------------------------------------------------------------------------


def _failed_itself(line: Mapping[str, Any]) -> bool:
    """Whether the rank failed for a reason of its own, not because it was told to stop."""
    if line["ok"] or "culprit" in line:
        return not line["ok"] and bool(line["culprit"])
    error = line.get("error")
    return error is None or _type(error) not in _CONSEQUENCES or bool(line.get("exit"))


def _failed_before_proof(evidence: Sequence[Line]) -> set[int]:
    """Ranks whose bodies had failed before anything was proved: the others' waiting is their doing."""
    failed = set()
    for line in evidence:
        if line["type"] == "certificate":
            break
        if line["type"] == "finish" and not line["ok"]:
            failed.add(line["rank"])
    return failed if any(line["type"] == "certificate" for line in evidence) else set()


def _ended(outcomes: Mapping[int, Line], own: Mapping[int, Line]) -> str:
    """Ranks whose processes ended while a proof about a real engine stood, before they were stopped: an engine's own
    watchdog ends a hang that way, but the proof doesn't say so."""
    gone = [
        f"rank {rank} ({line['exit']})"
        for rank, line in sorted(outcomes.items())
        if line.get("exit") not in (None, "stopped") and rank not in own
    ]
    return f"\nAfter this was proved, and before anything was stopped, there ended: {', '.join(gone)}" if gone else ""


def _type(error: Mapping[str, Any]) -> str:
    return str(error["type"]).rpartition(".")[2]


def _kind(own: Mapping[int, Line]) -> str:
    """What the ranks' own failures amount to; a crash outweighs wrong numbers."""
    kinds = {_type(line["error"]) if line.get("error") else "" for line in own.values()}
    if kinds <= {errors.WrongValuesError.__name__}:
        return WRONG_VALUES
    if kinds <= {errors.SilentMixError.__name__, errors.WrongValuesError.__name__}:
        return SILENT_MIX
    return CRASHED


def _failures(own: Mapping[int, Line]) -> str:
    rows = []
    for rank, line in sorted(own.items()):
        error, gone = line.get("error"), line.get("exit")
        what = f"{_type(error)}: {error['message']}" if error else "ended without a word"
        rows.append(f"rank {rank}: {what}" + (f" ({gone})" if gone and str(gone) not in what else ""))
    return "\n".join(rows)


# --- mixed data ---------------------------------------------------------------------------------------------


def _mixed(evidence: Sequence[Line], world: Line) -> bool:
    return bool(_mixes(evidence, world))


def _mixes(evidence: Sequence[Line], world: Line) -> list[tuple[str, dict[int, str]]]:
    """Instances that completed under the model with labels that differ, and each rank's label."""
    from harness.world.supervisor import Supervisor  # the machine that judged live judges again

    spec = BackendSpec(**world["backend"])
    again = Supervisor(world["world"], world["epoch"], spec, sink=None, settle=world["settle"])
    for line in evidence:
        record = lines.record_of(line)
        if record is not None:
            again.replay(line["rank"], record)
    return [(str(instance.key), {part.rank: part.op.label for part in instance.parts}) for instance in again.mixed]


def _mix_text(evidence: Sequence[Line], world: Line) -> str:
    rows = ["Every rank completed, but data that do not belong together met:"]
    for name, labels in _mixes(evidence, world)[:8]:
        rows.append(f"  {name}: " + ", ".join(f"rank {rank} {label}" for rank, label in sorted(labels.items())))
    return "\n".join(rows)
