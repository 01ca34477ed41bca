"""The swimlane picture of a cell, as data: a lane per rank, its operations from issue to completion, and their waits.

Made of a cell's evidence lines; drawn by `harness.report.html`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.model.certificate import Certificate
from harness.model.explain import first_divergence
from harness.model.operation import Group, InstanceKey, Operation, key_of, stream_of
from harness.model.order import TooManyAssignments, assignments, order_of
from harness.record.lines import parse_operation

Line = Mapping[str, Any]


@dataclass
class Mark:
    """One operation of one rank. Times are nanoseconds of the ranks' common clock; ``done`` is None if never.

    An operation that nobody waited for is done, as far as anyone knows, when its last part was there.
    """

    rank: int
    seq: int
    thread: str
    key: InstanceKey
    op: Operation
    issued: int
    done: int | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """As certificates call it, without its label: ``all_gather EDP #0``."""
        if self.key.stream == "n":
            return f"new_group {self.op.group} #{self.key.number}"
        return f"{self.op.kind} {self.key}"


@dataclass(frozen=True)
class Arrow:
    """``here`` can't go on before ``there``; each a mark, or a rank alone where nothing was issued.

    ``queued``: behind it in the same rank's queue; ``waits``: for the other rank's part of the same instance.
    """

    kind: str
    here: tuple[int, int | None]
    there: tuple[int, int | None]


@dataclass(frozen=True)
class Picture:
    """All marks in order of issue, the wait cycle's arrows, and the marks at which two ranks first part."""

    ranks: int
    marks: list[Mark] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    parted: list[tuple[int, int]] = field(default_factory=list)

    def last(self, most: int) -> Picture:
        """With the ``most`` last marks only."""
        if len(self.marks) <= most:
            return self
        kept = self.marks[-most:]
        there = {(mark.rank, mark.seq) for mark in kept}
        return Picture(self.ranks, kept, self.arrows, [place for place in self.parted if place in there])

    def to_json(self) -> dict[str, Any]:
        """Compact, for a script: times in microseconds from the first issue, texts by their place in ``texts``."""
        start = min((mark.issued for mark in self.marks), default=0)
        groups = list(dict.fromkeys(mark.op.group for mark in self.marks))
        at = {group: index for index, group in enumerate(groups)}
        texts: dict[str, int] = {}
        marks = [
            [
                mark.rank,
                mark.seq,
                texts.setdefault(mark.thread, len(texts)),
                at[mark.op.group],
                texts.setdefault(mark.name, len(texts)),
                texts.setdefault("" if mark.op.label in (mark.op.kind, "p2p") else mark.op.label, len(texts)),
                (mark.issued - start) / 1000,
                None if mark.done is None else (mark.done - start) / 1000,
                texts.setdefault(mark.where, len(texts)),
            ]
            for mark in self.marks
        ]
        return {
            "ranks": self.ranks,
            "groups": [shown(group) for group in groups],
            "texts": list(texts),
            "marks": marks,
            "arrows": [[a.kind, *a.here, *a.there] for a in self.arrows],
            "parted": self.parted,
        }


def shown(group: Group) -> str:
    """The group's name and ranks, only some of very many."""
    ranks = group.ranks
    if len(ranks) <= 16:
        return str(group)
    return f"{group.name}{{{','.join(map(str, ranks[:4]))},..,{ranks[-1]}: {len(ranks)} ranks}}"


def picture(lines: Iterable[Line]) -> Picture:
    """The picture of a cell's evidence. Raises what malformed lines raise."""
    marks: dict[tuple[int, int], Mark] = {}
    counts: dict[int, Counter[tuple[object, ...]]] = {}
    calls: dict[int, dict[str, list[tuple[Operation, ...]]]] = {}
    seqs: dict[tuple[int, str], list[list[int]]] = {}
    granted: dict[tuple[int, int], int] = {}
    proof: Certificate | None = None
    ranks, now, granting = 0, 0, True
    for line in lines:
        kind = line["type"]
        now = max(now, line.get("ns", 0))
        if kind == "cell":
            ranks = line["cell"]["world"]
        elif kind == "world":
            granting = line["backend"]["granting"]
        elif kind == "grant":
            granted |= {(line["rank"], seq): now for seq in line["seqs"]}
        elif kind == "issue":
            rank, thread = line["rank"], line["thread"]
            ops = tuple(parse_operation(op) for op in line["ops"])
            for offset, op in enumerate(ops):
                stream = stream_of(op)
                number = counts.setdefault(rank, Counter())[stream]
                counts[rank][stream] += 1
                seq = line["seq"] + offset
                key = key_of(rank, op, number)
                marks[rank, seq] = Mark(rank, seq, thread, key, op, line["ns"], where=_place(line["where"]))
            calls.setdefault(rank, {}).setdefault(thread, []).append(ops)
            seqs.setdefault((rank, thread), []).append([line["seq"] + offset for offset in range(len(ops))])
        elif kind == "complete" and (line["rank"], line["seq"]) in marks:
            marks[line["rank"], line["seq"]].done = line["ns"]
        elif kind == "certificate":
            proof = Certificate.from_json(line["certificate"]) if line["certificate"] else None
    ordered = sorted(marks.values(), key=lambda mark: mark.issued)
    _fill_in(ordered, granted if granting else _met(ordered))
    arrows = _arrows(proof, ordered) if proof else []
    parted = _parted(calls, seqs, [step.rank for step in proof.cycle] if proof else [])
    return Picture(max([ranks, *(mark.rank + 1 for mark in ordered)]), ordered, arrows, parted)


def _fill_in(marks: Iterable[Mark], begun: Mapping[tuple[int, int], int]) -> None:
    """Operations whose completion nobody waited for, but of which it is known when all parts were there."""
    for mark in marks:
        if mark.done is None and (mark.rank, mark.seq) in begun:
            mark.done = max(mark.issued, begun[mark.rank, mark.seq])


def _met(marks: Iterable[Mark]) -> dict[tuple[int, int], int]:
    """On a real engine, what started at once: when the last part of each whole instance was issued."""
    parts: dict[InstanceKey, list[Mark]] = {}
    for mark in marks:
        parts.setdefault(mark.key, []).append(mark)
    return {
        (mark.rank, mark.seq): max(part.issued for part in found)
        for key, found in parts.items()
        if key.group is not None and len(found) == (2 if key.stream == "p" else len(key.group.ranks))
        for mark in found
    }


def _arrows(proof: Certificate, marks: Iterable[Mark]) -> list[Arrow]:
    """The cycle: within a rank what holds a needed operation up, between ranks who waits for whose part."""
    at: dict[tuple[int, str], int] = {}
    for mark in marks:
        at[mark.rank, mark.name] = mark.seq
    arrows = []
    for step, after in zip(proof.cycle, proof.cycle[1:] + proof.cycle[:1], strict=True):
        needed = at.get((step.rank, _plain(step.needs)))
        holding = at.get((step.rank, _plain(step.behind)))
        arrows.append(Arrow("queued" if step.how == "queued" else "blocked", (step.rank, needed), (step.rank, holding)))
        arrows.append(Arrow("waits", (step.rank, holding), (after.rank, at.get((after.rank, _plain(after.needs))))))
    return arrows


def _plain(name: str) -> str:
    """The name of an instance without its labels."""
    return re.sub(r" \(.*\)$", "", name)


def _parted(
    calls: Mapping[int, Mapping[str, list[tuple[Operation, ...]]]],
    seqs: Mapping[tuple[int, str], list[list[int]]],
    waiting: Sequence[int],
) -> list[tuple[int, int]]:
    """Where two ranks first differ in what they share: those that wait for each other, else those of an order cycle."""
    try:
        cycle = order_of(calls).cycle
        if len(cycle) < 2:
            return []
        keys = next(assignments(calls))
    except TooManyAssignments:
        return []
    left, right = sorted(set(waiting))[:2] if len(set(waiting)) == 2 else (cycle[0].rank, cycle[1].rank)
    split = first_divergence(calls, keys, left, right)
    if split is None:  # a longer ring: no two of its ranks disagree, so what closes it is shown instead
        return [_find(keys, seqs, link.rank, link.first) for link in cycle]
    sides = [(split.left_rank, split.left), (split.right_rank, split.right)]
    return [_find(keys, seqs, rank, key) for rank, key in sides if key is not None]


def _find(
    keys: Mapping[tuple[int, str], list[tuple[InstanceKey, ...]]],
    seqs: Mapping[tuple[int, str], list[list[int]]],
    rank: int,
    key: InstanceKey,
) -> tuple[int, int]:
    for (owner, thread), calls in keys.items():
        if owner == rank:
            for call, numbers in zip(calls, seqs[rank, thread], strict=True):
                if key in call:
                    return rank, numbers[call.index(key)]
    raise KeyError(f"rank {rank} did not issue {key}")


def _place(frames: Any) -> str:
    if not frames:
        return ""
    file, line, function = frames[0]
    return f"{str(file).rpartition('/')[2]}:{line} in {function}"
