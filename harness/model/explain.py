"""Certificates and histories in words a tired person understands at once.

What comes first is what helps first: the outcome, the cycle with its lines of code, the two histories side by side
with the first difference marked, and an order that all ranks could follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from harness.model.certificate import Blocked, Certificate, Step, Where
from harness.model.operation import InstanceKey, Operation
from harness.model.order import Histories, Keys, OrderVerdict, assignments, common_order

_HEADLINES = {
    "deadlock": "DEADLOCK under {model}: {who} wait for each other in a cycle",
    "missing": "MISSING under {model}: ranks wait for what will never be issued",
    "mismatch": "MISMATCH under {model}: calls met that cannot belong together",
}
#: More ranks than this in one line are counted instead of listed.
_MANY = 8
#: More blocked threads than this are not listed one by one.
_MOST_BLOCKED = 16
#: So many frames of a stack are shown.
_FRAMES = 6


def certificate(proof: Certificate) -> str:
    """The certificate as text, several lines."""
    return "\n".join(_certificate(proof))


def _certificate(proof: Certificate) -> Iterator[str]:
    who = ranks(list({step.rank for step in proof.cycle})) if proof.cycle else "ranks"
    yield _HEADLINES[proof.outcome].format(model=proof.model, who=who)
    if proof.cycle:
        yield ""
        yield from (f"  {line}" for step in proof.cycle for line in _step(step))
    for clash in proof.clashes:
        yield ""
        yield f"  {clash.instance}"
        yield f"    rank {clash.left_rank}: {clash.left}{_at(clash.left_where)}"
        yield f"    rank {clash.right_rank}: {clash.right}{_at(clash.right_where)}"
    if proof.blocked:
        yield ""
        yield "Who stands where:"
        yield from (f"  {line}" for blocked in proof.blocked[:_MOST_BLOCKED] for line in _blocked(blocked))
        if len(proof.blocked) > _MOST_BLOCKED:
            yield f"  and {len(proof.blocked) - _MOST_BLOCKED} more threads"
    elif proof.unfinished and not proof.cycle and not proof.clashes:
        yield ""
        yield f"  never completed: {', '.join(proof.unfinished[:_MANY])}"


def _step(step: Step) -> Iterator[str]:
    who = f"rank {step.rank}" + ("" if step.thread == "main" else f" (thread {step.thread})")
    match step.how:
        case "queued":
            text = f"{who} has {step.needs} queued behind {step.behind}"
        case "hears":
            text = f"{who} owes {step.needs}, and waits to {step.behind}"
        case "first_use":
            text = f"{who} owes {step.needs}, and waits for the {step.behind}"
        case _:
            text = f"{who} has not issued {step.needs}: it waits for {step.behind}"
    yield text
    yield from (f"    {text}" for text in _stack(step.where))


def _blocked(blocked: Blocked) -> Iterator[str]:
    who = f"rank {blocked.rank}" + ("" if blocked.thread == "main" else f" (thread {blocked.thread})")
    yield f"{who} waits for {', '.join(blocked.stands_at[:3])}{_at(blocked.where)}"
    by_reason = sorted(blocked.absent, key=lambda absent: absent.instead)
    for instead, absents in groupby(by_reason, key=lambda absent: absent.instead):
        yield f"    {ranks([absent.rank for absent in absents])}: {instead}"


def ranks(numbers: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1, 2``, or ``1022 ranks (1, 2, 3, ...)``."""
    listed = ", ".join(map(str, sorted(numbers)[:_MANY]))
    if len(numbers) > _MANY:
        return f"{len(numbers)} ranks ({listed}, ...)"
    return f"rank{'s' if len(numbers) > 1 else ''} {listed}"


def _at(where: Where) -> str:
    return f"  [{_line(where[0])}]" if where else ""


def _stack(where: Where) -> Iterator[str]:
    """The innermost frames of functions that have a name, one a line."""
    named = [frame for frame in where if not frame[2].startswith("<") or frame[2] == "<module>"]
    for depth, frame in enumerate(named[:_FRAMES]):
        yield f"{'called from ' if depth else 'at '}{_line(frame)}"


def _line(frame: tuple[str, int, str]) -> str:
    file, line, function = frame
    place = f"{PurePath(file).name}:{line}" if line else PurePath(file).name
    return f"{place} in {function}" if function else place


# --- names of instances -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """What people call instances: operation, group, the how-manieth, and the label if it has one."""

    names: Mapping[InstanceKey, str]

    @classmethod
    def of(cls, histories: Histories, keys: Keys) -> Names:
        """Names of every instance in the histories."""
        kinds: dict[InstanceKey, dict[str, None]] = {}
        labels: dict[InstanceKey, dict[str, None]] = {}
        for (rank, thread), calls in keys.items():
            for call, ops in zip(calls, histories[rank][thread], strict=True):
                for key, op in zip(call, ops, strict=True):
                    kinds.setdefault(key, {})[op.kind if op.kind != "new_group" else f"new_group {op.group}"] = None
                    if op.label not in (op.kind, "p2p"):
                        labels.setdefault(key, {})[op.label] = None
        return cls({key: _name(key, list(kinds[key]), list(labels.get(key, ()))) for key in kinds})

    def __getitem__(self, key: InstanceKey) -> str:
        return self.names[key]


def _name(key: InstanceKey, kinds: Sequence[str], labels: Sequence[str]) -> str:
    suffix = f" ({'/'.join(labels)})" if labels else ""
    if key.stream == "n":
        return f"{'/'.join(kinds)} #{key.number}"
    return f"{'/'.join(kinds)} {key}{suffix}"


# --- histories ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two ranks part: their places in the calls both take part in, and what each issued there (or nothing)."""

    left_rank: int
    right_rank: int
    at: int
    left: InstanceKey | None
    right: InstanceKey | None


def shared_calls(histories: Histories, keys: Keys, rank: int, other: int) -> list[tuple[InstanceKey, Operation]]:
    """What the rank issued, in order, of instances that ``other`` takes part in too; threads one after the other."""
    found = []
    for (owner, thread), calls in keys.items():
        if owner != rank:
            continue
        for call, ops in zip(calls, histories[rank][thread], strict=True):
            found += [(key, op) for key, op in zip(call, ops, strict=True) if _takes_part(other, key)]
    return found


def _takes_part(rank: int, key: InstanceKey) -> bool:
    if key.stream == "p":
        return rank in (key.src, key.dst)
    return key.group is None or rank in key.group.ranks


def first_divergence(histories: Histories, keys: Keys, left: int, right: int) -> Divergence | None:
    """The first place where the two ranks' shared calls differ, in instance or in what was called; None if nowhere."""
    ours, theirs = shared_calls(histories, keys, left, right), shared_calls(histories, keys, right, left)
    for at in range(max(len(ours), len(theirs))):
        mine = ours[at] if at < len(ours) else None
        other = theirs[at] if at < len(theirs) else None
        if mine is None or other is None or mine[0] != other[0] or _differs(mine[1], other[1]):
            return Divergence(left, right, at, mine[0] if mine else None, other[0] if other else None)
    return None


def _differs(left: Operation, right: Operation) -> bool:
    if left.kind in ("send", "recv"):
        return (left.n, left.dtype, left.label) != (right.n, right.dtype, right.label)
    return (left.kind, left.root, left.n, left.dtype, left.label) != (
        right.kind,
        right.root,
        right.n,
        right.dtype,
        right.label,
    )


def side_by_side(histories: Histories, left: int, right: int, *, context: int = 4, width: int = 110) -> str:
    """The shared calls of two ranks in two columns, around their first difference, which is marked."""
    keys = next(assignments(histories))
    ours, theirs = shared_calls(histories, keys, left, right), shared_calls(histories, keys, right, left)
    split = first_divergence(histories, keys, left, right)
    at = split.at if split else 0
    first, last = max(0, at - context), at + context + 1
    column = (width - 14) // 2
    lines = [f"{'':5}{f'rank {left}':<{column}}   rank {right}"]
    if first:
        lines.append(f"{'':5}... {first} the same")
    for row in range(first, min(last, max(len(ours), len(theirs)))):
        marked = split is not None and row == at
        mine, other = _cell(ours, row, column, marked), _cell(theirs, row, column, marked)
        lines.append(f"{row:>4} {mine:<{column}} {'≠' if marked else ' '} {other}".rstrip())
        if marked:
            lines.append(f"{'':5}{'^ first difference':<{column}}")
    left_out = max(len(ours), len(theirs)) - last
    if left_out > 0:
        lines.append(f"{'':5}... {left_out} more")
    return "\n".join(lines)


def _cell(calls: Sequence[tuple[InstanceKey, Operation]], row: int, column: int, marked: bool) -> str:
    if row >= len(calls):
        return "(nothing more)"
    key, op = calls[row]
    text = f"{op} #{key.number}" + (f" n={op.n} {op.dtype}" if marked and op.kind != "barrier" else "")
    return text if len(text) <= column else text[: column - 1] + "…"


def order(verdict: OrderVerdict, histories: Histories) -> str:
    """The order verdict as text: the cycle, one rank a line."""
    if verdict.verdict == "consistent":
        return "order: consistent (one order of all operations serves every rank)"
    keys = next(assignments(histories))
    names = Names.of(histories, keys)
    lines = ["order: CYCLIC (no one order of all operations serves every rank)"]
    for link in verdict.cycle:
        who = f"rank {link.rank}" + ("" if link.thread == "main" else f" (thread {link.thread})")
        first, then = (names.names.get(key) or str(key) for key in (link.first, link.then))
        lines.append(f"  {who} issues {first} before {then}")
    return "\n".join(lines)


def remedy(histories: Histories, segments: Mapping[tuple[int, str], Sequence[int]] | None = None) -> str:
    """An order that all ranks could follow, printed, or why there is none.

    ``segments`` says which calls of a thread a host wait separates (`harness.model.order.common_order`).
    """
    keys = next(assignments(histories))
    names = Names.of(histories, keys)
    found = common_order(keys, segments)
    caveat = ""
    if found is None and segments is not None:
        found = common_order(keys)
        caveat = " (across the waits between them; possible only where the later call needs nothing of the earlier)"
    if found is None:
        return "No order of these operations serves every rank: on one group ranks disagree about what comes first."
    lines = [f"An order that every rank could follow{caveat}:"]
    lines += [f"  {number}. {names[key]}" for number, key in enumerate(found[:20], 1)]
    if len(found) > 20:
        lines.append(f"  ... and {len(found) - 20} more")
    return "\n".join(lines)
