"""A run's evidence as flight-recorder dumps, one a rank, which ``torchfrtrace`` and ``harness check`` read.

The recorder knows no creation or destruction of groups; those are left out. What it knows of a batch it shows as torch
does: the calls under one number, closed by an entry of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from harness.model.operation import LIFECYCLE, POINT_TO_POINT, Group, Operation
from harness.record.flight.write import dump, entry, write
from harness.record.lines import frames, parse_operation

#: The prefix of the files' names; the rank follows.
PREFIX = "rank_"


def export(
    lines: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    world: int,
    transport: str = "gloo",
    form: Literal["pickle", "json"] = "pickle",
) -> list[Path]:
    """Write the dumps of all ranks, also of those that issued nothing; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = _groups(lines, world)
    paths = []
    for rank in range(world):
        path = folder / f"{PREFIX}{rank}{'.json' if form == 'json' else ''}"
        mine = [line for line in lines if line.get("rank") == rank]
        known = {name: (g.name, g.ranks) for g, name in groups.items() if rank in g.ranks}
        write(path, dump(known, _Ring(rank, groups, transport, mine).entries()), form)
        paths.append(path)
    return paths


def _groups(lines: Sequence[Mapping[str, Any]], world: int) -> dict[Group, str]:
    """Every group that is used, named by number as torch does; ``0`` is the world."""
    groups = {Group("default_pg", tuple(range(world))): "0"}
    for line in lines:
        if line["type"] == "issue":
            for op in map(parse_operation, line["ops"]):
                if op.kind not in LIFECYCLE:
                    groups.setdefault(op.group, str(len(groups)))
    return groups


class _Ring:
    """What one rank's recorder would hold."""

    def __init__(
        self, rank: int, groups: Mapping[Group, str], transport: str, lines: Sequence[Mapping[str, Any]]
    ) -> None:
        self.rank, self.groups, self.transport = rank, groups, transport
        self.issues = [line for line in lines if line["type"] == "issue"]
        self.complete = {line["seq"] for line in lines if line["type"] == "complete"}
        self.found: list[dict[str, Any]] = []
        self.collectives: dict[Group, int] = {}
        self.transfers: dict[Group, int] = {}

    def entries(self) -> list[dict[str, Any]]:
        """The entries, oldest first."""
        for line in self.issues:
            ops = [parse_operation(op) for op in line["ops"]]
            if ops[0].kind in POINT_TO_POINT:
                self.transfers[ops[0].group] = self.transfers.get(ops[0].group, 0) + 1
            for offset, op in enumerate(ops):
                if op.kind not in LIFECYCLE:
                    self._add(op, line, line["seq"] + offset in self.complete)
            if len(ops) > 1:
                self._close(ops[0], line, all(line["seq"] + i in self.complete for i in range(len(ops))))
        return self.found

    def _add(self, op: Operation, line: Mapping[str, Any], done: bool) -> None:
        p2p = op.kind in POINT_TO_POINT
        if not p2p:
            self.collectives[op.group] = self.collectives.get(op.group, 0) + 1
        inputs, outputs = _sizes(op, self.rank)
        self._entry(op, f"{op.kind}{self._peers(op)}", line, done, inputs, outputs)

    def _close(self, op: Operation, line: Mapping[str, Any], done: bool) -> None:
        self._entry(op, "coalesced", line, done, [], [])
        self.found[-1]["is_p2p"] = True

    def _entry(
        self,
        op: Operation,
        name: str,
        line: Mapping[str, Any],
        done: bool,
        inputs: list[list[int]],
        outputs: list[list[int]],
    ) -> None:
        self.found.append(
            entry(
                len(self.found),
                (self.groups[op.group], op.group.name),
                f"{self.transport}:{name}",
                collective_seq=self.collectives.get(op.group, 0),
                p2p_seq=self.transfers.get(op.group, 0),
                op_id=self.collectives.get(op.group, 0) + self.transfers.get(op.group, 0),
                pg_id=int(self.groups[op.group]),
                inputs=inputs,
                outputs=outputs,
                dtype=op.dtype,
                state="completed" if done else "scheduled",
                created_ns=line["ns"],
                frames=frames(line["where"]),
            )
        )

    def _peers(self, op: Operation) -> str:
        """`` 0->1``: places in the group, as torch counts them (by ascending rank)."""
        if op.kind not in POINT_TO_POINT or op.peer is None:
            return ""
        places = sorted(op.group.ranks)
        mine, other = places.index(self.rank), places.index(op.peer)
        return f" {mine}->{other}" if op.kind == "send" else f" {mine}<-{other}"


def _sizes(op: Operation, rank: int) -> tuple[list[list[int]], list[list[int]]]:
    """Shapes of inputs and outputs as torch records them."""
    one, all_ = [[op.n]], [[op.n * len(op.group.ranks)]]
    root = rank == op.root
    match op.kind:
        case "all_gather":
            return one, all_
        case "reduce_scatter":
            return all_, one
        case "gather":
            return one, all_ if root else []
        case "scatter":
            return all_ if root else [], one
        case "barrier":
            return [], []
    return one, one
