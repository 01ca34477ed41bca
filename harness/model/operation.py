"""What ranks issue: operations, the process groups they run on, and the instances they are parts of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: Collectives without a root.
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
#: Collectives whose ``root`` is a world rank.
ROOTED = ("broadcast", "reduce", "gather", "scatter")
#: Point to point; ``peer`` is the other side's world rank.
POINT_TO_POINT = ("send", "recv")
#: Operations that make or end a process group.
LIFECYCLE = ("new_group", "destroy_group")
KINDS = SYMMETRIC + ROOTED + POINT_TO_POINT + LIFECYCLE


class Group(NamedTuple):
    """A process group: its name and its world ranks, in group order."""

    name: str
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}{{{','.join(map(str, self.ranks))}}}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One rank's part of a collective or of a point-to-point call, as issued.

    ``group`` is the group it runs on; for ``new_group`` it is the group created (and all ranks of the world
    take part). ``root`` and ``peer`` are world ranks. ``n`` is the number of elements per rank.
    ``label`` is the logical identity of the data: parts of one instance that agree in everything else and
    differ in label are mixed silently. An empty label means the default, the kind (``p2p`` for send and recv).
    """

    kind: str
    group: Group
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    n: int = 8
    dtype: str = "float32"
    label: str = field(default="")

    def __post_init__(self) -> None:
        if not self.label:
            default = "p2p" if self.kind in POINT_TO_POINT else self.kind
            object.__setattr__(self, "label", default)

    def __str__(self) -> str:
        words = [self.kind, self.group.name]
        if self.root is not None:
            words.append(f"root={self.root}")
        if self.peer is not None:
            words.append(f"{'to' if self.kind == 'send' else 'from'}={self.peer}")
        if self.tag:
            words.append(f"tag={self.tag}")
        if self.label not in (self.kind, "p2p"):
            words.append(f"label={self.label}")
        return " ".join(words)


class InstanceKey(NamedTuple):
    """Which parts belong together.

    ``("c", group, 0, 0, 0, k)``: the k-th collective of each member on the group; ``("p", group, src, dst, tag, k)``:
    the k-th send and recv of that pair and tag; ``("n", None, 0, 0, 0, k)``: the k-th ``new_group`` of each rank.
    """

    stream: str
    group: Group | None
    src: int
    dst: int
    tag: int
    number: int

    def __str__(self) -> str:
        if self.stream == "n":
            return f"new_group #{self.number}"
        assert self.group is not None
        if self.stream == "p":
            tag = f" tag {self.tag}" if self.tag else ""
            return f"{self.group.name} {self.src}->{self.dst}{tag} #{self.number}"
        return f"{self.group.name} #{self.number}"


def stream_of(op: Operation) -> tuple[object, ...]:
    """What numbers the op among its rank's others: the group's collectives, a pair's sends or its recvs, creations."""
    if op.kind in POINT_TO_POINT:
        return (op.kind, op.group, op.peer, op.tag)
    return ("new_group",) if op.kind == "new_group" else ("collective", op.group)


def key_of(rank: int, op: Operation, number: int) -> InstanceKey:
    """The instance that the rank's operation belongs to, ``number``-th (from 0) on its stream."""
    if op.kind in POINT_TO_POINT:
        assert op.peer is not None
        src, dst = (rank, op.peer) if op.kind == "send" else (op.peer, rank)
        return InstanceKey("p", op.group, src, dst, op.tag, number)
    if op.kind == "new_group":
        return InstanceKey("n", None, 0, 0, 0, number)
    return InstanceKey("c", op.group, 0, 0, 0, number)
