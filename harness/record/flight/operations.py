"""A rank's entries as operations: kinds by the model's names, groups by what they are, batches recognised."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from harness.errors import InputError
from harness.model.operation import Group
from harness.record.flight.fields import (
    ABSENT,
    DESC,
    GROUP,
    IN_N,
    IN_TYPE,
    IS_P2P,
    NAME,
    OUT_N,
    OUT_TYPE,
    P2P_SEQ,
    PG_ID,
    RECORD,
    RETIRED,
    SEQ,
    STATE,
)
from harness.record.flight.table import Table

_P2P = re.compile(r"(?:send (\d{1,7})->(\d{1,7})|recv (\d{1,7})<-(\d{1,7}))")
#: Names in dumps, without the backend's prefix, by what they are; others are collectives of that name.
_SAME = {
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "_all_gather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "ALLGATHER_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "all_to_all_v_single": "all_to_all",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "REDUCE_SCATTER_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
_ENDS_BATCH = re.compile(r"coalesced|\w+_coalesced")
#: Whose size the ranks must agree on: that of the output, of nothing, else of the input.
_BY_OUTPUT = ("reduce_scatter", "scatter", "recv")
_BY_NOTHING = ("all_to_all", "barrier", "all_gather_v", "reduce_scatter_v")
_MOST = (1 << 40) - 1


@dataclass(frozen=True)
class Kind:
    """What an entry's name says. For send and recv, ``peers`` are (source, destination) as places in the group."""

    name: str
    backend: str
    peers: tuple[int, int] | None = None
    ends_batch: bool = False


@lru_cache(maxsize=65536)
def kind_of(text: str) -> Kind:
    """``nccl:_all_gather_base`` is an all_gather, ``nccl:send 0->1`` a send."""
    backend, _, name = text.rpartition(":")
    match = _P2P.fullmatch(name)
    if match:
        peers = (int(match[1]), int(match[2])) if match[1] else (int(match[4]), int(match[3]))
        return Kind("send" if match[1] else "recv", backend, peers)
    return Kind(_SAME.get(name, name), backend, ends_batch=bool(_ENDS_BATCH.fullmatch(name)))


class Interner:
    """Numbers for the groups, kinds and types of all ranks."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, tuple[int, ...] | None], int] = {}
        self.kinds: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self.descriptions: dict[int, str] = {}

    @staticmethod
    def number(numbers: dict[Any, int], key: Any) -> int:
        """The key's number, a new one if it is new."""
        return numbers.setdefault(key, len(numbers))


@dataclass(frozen=True)
class Issued:
    """What one rank issued, oldest first; one element an operation.

    ``source`` and ``target`` are world ranks of a point-to-point call, -1 otherwise. ``sequence`` numbers a
    collective on its group. ``step`` numbers calls: a batch's share one. ``entry`` is the place in the dump.
    ``signature`` packs elements, kind and type. ``lost`` says that the ring has dropped older entries;
    ``last_enqueued`` is the last collective that was issued by the recorder's number of a group (``pg_of``).
    """

    group: Any
    kind: Any
    sequence: Any
    signature: Any
    step: Any
    source: Any
    target: Any
    done: Any
    entry: Any
    lost: bool
    last_enqueued: dict[int, int]
    pg_of: dict[int, int]


def issued(table: Table, rank: int, names: Interner) -> Issued:
    """The operations of a dump. Raises InputError where an entry contradicts its group."""
    rows = table.rows
    if len(rows) and (np.diff(rows[:, RECORD]) < 0).any():
        order = np.argsort(rows[:, RECORD], kind="stable")
        rows = rows[order]
    else:
        order = np.arange(len(rows))
    kinds = [kind_of(text) for text in table.texts]
    group = _groups(table, rows, names)
    point = _which(kinds, rows, lambda kind: kind.peers is not None)
    first, closing = _batches(rows, group, kinds, point)
    follows = first < np.arange(len(rows))
    done = _done(rows, table.texts, kinds)
    _spread_ends(done, first, closing)
    keep = ~(follows & ~point) & ~_which(kinds, rows, lambda kind: kind.name == "coalesced")
    source, target = _peers(table, rows, group, kinds, point, names)
    own = np.where(_which(kinds, rows, lambda kind: kind.name == "send"), source, target)
    if (own[point] != rank).any():
        place = int(np.flatnonzero(point & (own != rank))[0])
        raise InputError(
            f"entry {int(order[place])}: {table.texts[rows[place, NAME]]!r} is no call of rank {rank} in its group",
            file=table.file,
        )
    keep &= ~(point & (source == target))
    nameless = keep & ~point & (rows[:, SEQ] < 0)
    if nameless.any():
        place = int(np.flatnonzero(nameless)[0])
        raise InputError(f"entry {int(order[place])}: its collective_seq_id is missing", file=table.file)
    return Issued(
        group=group[keep].astype(np.int32),
        kind=np.array([names.number(names.kinds, k.name) for k in kinds], np.int16)[rows[keep, NAME]],
        sequence=rows[keep, SEQ].astype(np.int64),
        signature=_signatures(table, rows, kinds, names)[keep],
        step=np.cumsum(~follows)[keep].astype(np.int32),
        source=source[keep],
        target=target[keep],
        done=done[keep],
        entry=order[keep].astype(np.int32),
        lost=bool(len(rows)) and int(rows[0, RECORD]) > 0,
        last_enqueued=table.enqueued,
        pg_of=_first_of_each(group, rows[:, PG_ID]),
    )


def _groups(table: Table, rows: Any, names: Interner) -> Any:
    """The number of each entry's group: its name with its ranks, or with none where the recorder doesn't say."""
    numbers = np.full(len(table.texts) + 1, ABSENT, np.int64)
    for text in np.unique(rows[:, GROUP]).tolist():
        name = table.texts[text]
        ranks = table.config[name][1] if name in table.config else None
        numbers[text] = number = names.number(names.groups, (name, ranks))
        if number not in names.descriptions:
            desc = rows[rows[:, GROUP] == text][0, DESC]
            names.descriptions[number] = table.texts[desc] if desc >= 0 else ""
    return numbers[rows[:, GROUP]]


def _which(kinds: list[Kind], rows: Any, what: Callable[[Kind], bool]) -> Any:
    """Of which entries something holds."""
    return np.array([what(kind) for kind in kinds], np.bool_)[rows[:, NAME]]


def _batches(rows: Any, group: Any, kinds: list[Kind], point: Any) -> tuple[Any, Any]:
    """The first entry of each entry's batch, and which entries close one.

    Neighbours of one group and one sequence number are a batch; the entry that closes it is no call of its own.
    """
    count = len(rows)
    p2p = point | (rows[:, IS_P2P] > 0)
    number = np.where(p2p, rows[:, P2P_SEQ], rows[:, SEQ])
    closes = _which(kinds, rows, lambda kind: kind.ends_batch)
    same = np.zeros(count, np.bool_)
    same[1:] = (group[1:] == group[:-1]) & (number[1:] == number[:-1]) & (number[1:] >= 0) & ~closes[:-1]
    same[1:] &= p2p[1:] == p2p[:-1]
    return np.maximum.accumulate(np.where(same, 0, np.arange(count))), same & closes


def _done(rows: Any, texts: tuple[str, ...], kinds: list[Kind]) -> Any:
    """Whether the record says that it completed: gloo only retires, the others say so in their state."""
    completed = np.array([*(text == "completed" for text in texts), False], np.bool_)[rows[:, STATE]]
    gloo = _which(kinds, rows, lambda kind: kind.backend == "gloo")
    return completed | (gloo & (rows[:, RETIRED] > 0))


def _spread_ends(done: Any, first: Any, closing: Any) -> None:
    """In a batch only the closing entry's state is kept up to date."""
    closers = np.flatnonzero(closing)
    if len(closers):
        of_batch = np.full(len(done), ABSENT, np.int64)
        of_batch[first[closers]] = closers
        closer = of_batch[first]
        done[closer >= 0] = done[closer[closer >= 0]]


def _peers(table: Table, rows: Any, group: Any, kinds: list[Kind], point: Any, names: Interner) -> tuple[Any, Any]:
    """World ranks of senders and receivers; a dump numbers them by their place in the group."""
    source, target = np.full(len(rows), ABSENT, np.int32), np.full(len(rows), ABSENT, np.int32)
    members = {number: ranks for (_, ranks), number in names.groups.items()}
    for place in np.flatnonzero(point).tolist():
        peers = kinds[rows[place, NAME]].peers
        assert peers is not None
        ranks = members[group[place]]
        if ranks is None:
            source[place], target[place] = peers
        elif max(peers) < len(ranks):
            in_order = sorted(ranks)
            source[place], target[place] = in_order[peers[0]], in_order[peers[1]]
        else:
            raise InputError(f"{table.texts[rows[place, NAME]]!r} names a rank beyond its group", file=table.file)
    return source, target


def _signatures(table: Table, rows: Any, kinds: list[Kind], names: Interner) -> Any:
    """What parts must agree in, packed: elements, kind, type. A send and its recv agree in kind."""
    name = rows[:, NAME]
    by_output = _which(kinds, rows, lambda kind: kind.name in _BY_OUTPUT)
    by_nothing = _which(kinds, rows, lambda kind: kind.name in _BY_NOTHING)
    kind = np.array([names.number(names.kinds, "p2p" if k.peers else k.name) for k in kinds], np.int64)[name]
    types = np.array([*(names.number(names.types, text) for text in table.texts), 4095], np.int64)
    size = np.where(by_output, rows[:, OUT_N], rows[:, IN_N])
    dtype = types[np.where(by_output, rows[:, OUT_TYPE], rows[:, IN_TYPE])]
    size, dtype = np.where(by_nothing, 0, size), np.where(by_nothing, 0, dtype)
    return np.clip(size + 1, 0, _MOST) << 22 | (kind & 1023) << 12 | dtype & 4095


def _first_of_each(keys: Any, values: Any) -> dict[int, int]:
    """The first value beside each different key."""
    found, places = np.unique(keys, return_index=True)
    return dict(zip(found.tolist(), values[places].tolist(), strict=True))


def group_of(key: tuple[str, tuple[int, ...] | None], description: str, ranks: tuple[int, ...]) -> Group:
    """The group as people know it: its description where it has one of its own."""
    name = key[0]
    named = description if description and description != "undefined" else ""
    return Group(f"{named}:{name}" if named and named != name else name or "default", ranks)
