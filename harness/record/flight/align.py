"""All ranks' operations matched: which belong together, whose parts were lost or never issued, as `fast.Arrays`.

Collectives match by the sequence number the recorder gives them on their group, so that rings which lost different
amounts still align. Point-to-point calls of a pair match in order; where a ring lost entries they are counted back from
the last that completed, which is the same on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.model.fast import ISSUE, SYNC, Arrays
from harness.model.operation import SYMMETRIC, Group, InstanceKey
from harness.model.peel import buckets
from harness.record.flight.folder import Dumps
from harness.record.flight.operations import Interner, Issued, group_of, issued


@dataclass(frozen=True)
class Matched:
    """The job: ``arrays`` as if every call were asynchronous, ranks numbered by their place in ``ranks``.

    ``op_entry`` is an operation's place in its dump, ``op_done`` whether it is recorded as completed, ``op_step`` its
    call. ``part_ptr`` and ``part_op`` list each instance's recorded operations.
    """

    ranks: tuple[int, ...]
    arrays: Arrays
    op_step: Any
    op_kind: Any
    op_entry: Any
    op_done: Any
    part_ptr: Any
    part_op: Any
    kinds: tuple[str, ...]
    types: tuple[str, ...]
    notes: tuple[str, ...]
    _keys: _Keys = field(repr=False)

    def key(self, instance: int) -> InstanceKey:
        """Which instance this is."""
        return self._keys.key(instance)

    def group(self, number: int) -> Group:
        """The group of this number in the arrays."""
        return self._keys.groups[number]

    def kind(self, instance: int) -> str:
        """What its parts call, such as ``all_reduce`` or ``send/recv``."""
        ops = self.part_op[self.part_ptr[instance] : self.part_ptr[instance + 1]]
        return "/".join(dict.fromkeys(self.kinds[k] for k in self.op_kind[ops].tolist()))

    def signature(self, op: int) -> str:
        """What the operation's part must share with the others, in words."""
        packed = int(self.arrays.op_sig[op])
        n, dtype = (packed >> 22) - 1, packed & 4095
        name = self.kinds[int(self.op_kind[op])]
        return f"{name} n={n if n >= 0 else '?'} dtype={self.types[dtype] if dtype < len(self.types) else '?'}"


@dataclass(frozen=True)
class _Keys:
    groups: tuple[Group, ...]
    group: Any  # per instance
    number: Any
    source: Any
    target: Any

    def key(self, instance: int) -> InstanceKey:
        group = self.groups[self.group[instance]]
        number, source = int(self.number[instance]), int(self.source[instance])
        if source < 0:
            return InstanceKey("c", group, 0, 0, 0, number)
        return InstanceKey("p", group, source, int(self.target[instance]), 0, number)


def match(dumps: Dumps) -> Matched:
    """Match the dumps' operations. Raises InputError where one contradicts itself."""
    names = Interner()
    ranks = tuple(dumps.tables)
    lists = []
    for rank in ranks:
        lists.append(issued(dumps.tables[rank], rank, names))
        dumps.tables[rank] = None  # type: ignore[assignment]  # what it held is in the lists: memory stays flat
    return _Matcher(ranks, lists, names).matched()


class _Matcher:
    def __init__(self, ranks: tuple[int, ...], lists: list[Issued], names: Interner) -> None:
        self.ranks, self.lists, self.names = ranks, lists, names
        self.place = {rank: place for place, rank in enumerate(ranks)}
        self.op_ptr = np.cumsum([0, *(len(one.group) for one in lists)], dtype=np.int64)
        self.op_rank = np.repeat(np.arange(len(ranks)), np.diff(self.op_ptr))
        self.group = self._all("group")
        self.source, self.target = self._all("source"), self._all("target")
        self.kind, self.done = self._all("kind"), self._all("done")
        self.symmetric = [kind in SYMMETRIC for kind in names.kinds]
        self.notes: list[str] = []
        self.groups = self._groups()

    def _all(self, name: str) -> Any:
        return np.concatenate([getattr(one, name) for one in self.lists])

    def _groups(self) -> tuple[Group, ...]:
        """Groups with their ranks; where the recorder doesn't say, those that were seen to use it."""
        found, inferred = [], []
        for (name, ranks), number in self.names.groups.items():
            if ranks is None:
                users = np.unique(self.op_rank[self.group == number]).tolist()
                is_world = self.names.descriptions.get(number) == "default_pg"
                ranks = self.ranks if is_world else tuple(self.ranks[place] for place in users)
                inferred.append(name or "default")
            found.append(group_of((name, ranks), self.names.descriptions.get(number, ""), ranks))
        if inferred:
            listed = ", ".join(inferred[:4]) + (", ..." if len(inferred) > 4 else "")
            self.notes.append(f"the recorder names no ranks of {listed}: taken to be those that used it")
        return tuple(found)

    def matched(self) -> Matched:
        number = self._all("sequence")
        point = self.source >= 0
        if point.any():
            number[point] = self._p2p_numbers(point)
        instance, first = self._instances(number, point)
        part_ptr, part_op = buckets(instance, len(first))
        keys = _Keys(self.groups, self.group[first], number[first], self.source[first], self.target[first])
        slots = self._slots(keys, instance, part_ptr, part_op)
        self._say_absent()
        return Matched(
            ranks=self.ranks,
            arrays=self._arrays(instance, slots),
            op_step=self._all("step"),
            op_kind=self.kind,
            op_entry=self._all("entry"),
            op_done=self.done,
            part_ptr=part_ptr,
            part_op=part_op,
            kinds=tuple(self.names.kinds),
            types=tuple(self.names.types),
            notes=tuple(self.notes),
            _keys=keys,
        )

    # --- numbers --------------------------------------------------------------------------------------------

    def _instances(self, number: Any, point: Any) -> tuple[Any, Any]:
        """The instance of each operation, and one operation of each instance."""
        stream = self.group.astype(np.int64)
        if point.any():
            pair = (stream * (1 << 20) + self.source) * (1 << 20) + self.target
            _, pair_stream = np.unique(pair[point], return_inverse=True)
            stream[point] = len(self.groups) + pair_stream
        streams = int(stream.max()) + 1 if len(stream) else 0
        low, high = np.full(streams, 1 << 62, np.int64), np.full(streams, -(1 << 62), np.int64)
        np.minimum.at(low, stream, number)
        np.maximum.at(high, stream, number)
        spans = np.maximum(high.astype(object) - low.astype(object) + 1, 0)
        if int(spans.sum()) <= 4 * len(stream) + 1024:  # numbers are dense, as they should be: no sorting
            base = np.cumsum([0, *spans[:-1].tolist()], dtype=np.int64) - low
            code = base[stream] + number
        else:
            code = np.unique(np.stack([stream, number]), axis=1, return_inverse=True)[1].reshape(-1)
        present = np.zeros(int(code.max()) + 1 if len(code) else 0, np.bool_)
        present[code] = True
        instance = (np.cumsum(present) - 1)[code]
        first = np.empty(int(present.sum()), np.int64)
        first[instance[::-1]] = np.arange(len(instance))[::-1]
        return instance, first

    def _p2p_numbers(self, point: Any) -> Any:
        """The how-manieth of its pair each point-to-point call is."""
        places = np.flatnonzero(point)
        counts: dict[tuple[int, ...], int] = {}
        finished: dict[tuple[int, ...], int] = {}
        numbers, streams = [], []
        lossy: set[tuple[int, ...]] = set()
        columns = (self.op_rank, self.group, self.source, self.target, self.done)
        for place, group, source, target, done in zip(*(c[places].tolist() for c in columns), strict=True):
            sends = self.ranks[place] == source
            pair = (group, source, target)
            stream = (*pair, sends)
            counts[stream] = number = counts.get(stream, -1) + 1
            if done:
                finished[stream] = number + 1
            if self.lists[place].lost:
                lossy.add(pair)
            numbers.append(number)
            streams.append(stream)
        return np.array(
            [n - finished.get(s, 0) if s[:3] in lossy else n for n, s in zip(numbers, streams, strict=True)], np.int64
        )

    # --- who should take part -------------------------------------------------------------------------------

    def _slots(self, keys: _Keys, instance: Any, part_ptr: Any, part_op: Any) -> tuple[Any, Any, Any]:
        """Per instance the parts it needs: those recorded, and those that were never issued by ranks with a dump."""
        collective = keys.source < 0
        present = [[self.place[r] for r in group.ranks if r in self.place] for group in self.groups]
        have = np.array([len(places) for places in present], np.int64)
        need = np.where(collective, have[keys.group], 2) if len(keys.group) else np.zeros(0, np.int64)
        short = np.flatnonzero(np.diff(part_ptr) < need)
        extra: dict[int, list[int]] = {}
        history = _History(self.lists)
        shown = 0
        for i in short.tolist():
            parts = part_op[part_ptr[i] : part_ptr[i + 1]]
            here = set(self.op_rank[parts].tolist())
            number, group = int(keys.number[i]), int(keys.group[i])
            if collective[i]:
                places = present[group]
            else:
                places = [self.place[int(r)] for r in (keys.source[i], keys.target[i]) if int(r) in self.place]
            never = []
            for place in places:
                if place in here:
                    continue
                lost = history.lost(place, group, number) if collective[i] else self._p2p_lost(place, number)
                if not lost:
                    never.append(place)
            if never and self._met(parts):
                shown += 1
            elif never:
                extra[i] = never
        if shown:
            self.notes.append(
                f"{shown} operations completed on some ranks and are not in the dumps of others, which were taken "
                "earlier: taken to have been issued there"
            )
        return _with_extra(part_ptr, part_op, self.op_rank, extra)

    def _met(self, parts: Any) -> bool:
        """Whether one part's completion proves that all were issued: so it is where every rank needs every other."""
        done = parts[self.done[parts]]
        return len(done) > 0 and self.symmetric[self.kind[done[0]]]

    def _p2p_lost(self, place: int, number: int) -> bool:
        """A lossy pair counts back from its last completed call: what is numbered below 0 had completed."""
        return self.lists[place].lost and number < 0

    def _say_absent(self) -> None:
        named = {rank for group in self.groups for rank in group.ranks}
        absent = sorted(named - set(self.ranks))
        if absent:
            listed = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
            self.notes.append(f"no dump of rank {listed}: taken to have issued whatever the others needed of it")
        lossy = [self.ranks[place] for place, one in enumerate(self.lists) if one.lost]
        if lossy:
            listed = ", ".join(map(str, lossy[:8])) + (", ..." if len(lossy) > 8 else "")
            self.notes.append(f"the ring of rank {listed} lost its oldest entries: taken to have been issued in time")

    def _arrays(self, instance: Any, slots: tuple[Any, Any, Any]) -> Arrays:
        """Every call asynchronous; a rank with operations recorded as incomplete then waits for all it issued."""
        ends = self.op_ptr[1:]
        open_ranks = np.zeros(len(self.ranks), np.bool_)
        open_ranks[self.op_rank[~self.done]] = True
        steps = self._all("step")
        begins = np.ones(len(steps), np.bool_)
        begins[1:] = (steps[1:] != steps[:-1]) | (self.op_rank[1:] != self.op_rank[:-1])
        heads = np.flatnonzero(begins)
        sizes = np.diff([*heads.tolist(), len(steps)]) if len(heads) else np.zeros(0, np.int64)
        calls = np.bincount(self.op_rank[heads], minlength=len(self.ranks))
        event_ptr = np.cumsum([0, *(calls + open_ranks).tolist()], dtype=np.int64)
        code = np.full(event_ptr[-1], SYNC, np.int8)
        a, b = np.zeros(event_ptr[-1], np.int64), np.zeros(event_ptr[-1], np.int64)
        shift = np.cumsum([0, *open_ranks[:-1].tolist()], dtype=np.int64)
        at = np.arange(len(heads)) + shift[self.op_rank[heads]]
        code[at], a[at], b[at] = ISSUE, heads, sizes
        # A ring that lost entries says nothing of first uses: its rank has used its groups before.
        known = {rank: place for rank, place in self.place.items() if not self.lists[place].lost}
        members = [[known[r] for r in group.ranks if r in known] for group in self.groups]
        member_ptr = np.cumsum([0, *map(len, members)], dtype=np.int64)
        index = {
            (number, place): int(member_ptr[number]) + at
            for number, places in enumerate(members)
            for at, place in enumerate(places)
        }
        op_member = np.empty(len(self.group), np.int64)
        table = np.full(len(self.groups), -1, np.int64)
        for place in range(len(self.ranks)):
            here = slice(self.op_ptr[place], ends[place])
            for number in np.unique(self.group[here]).tolist():
                table[number] = index.get((number, place), -1)
            op_member[here] = table[self.group[here]]
        slot_ptr, slot_rank, slot_op = slots
        sends = self.names.kinds.get("send", -1)
        return Arrays(
            event_ptr=event_ptr,
            event_code=code,
            event_a=a,
            event_b=b,
            op_ptr=self.op_ptr,
            op_rank=self.op_rank,
            op_instance=instance,
            op_sig=self._all("signature"),
            op_label=np.zeros(len(instance), np.int64),
            op_send=self.kind == sends,
            op_group=self.group.astype(np.int64),
            op_member=op_member,
            slot_ptr=slot_ptr,
            slot_rank=slot_rank,
            slot_op=slot_op,
            member_ptr=member_ptr,
            member_rank=np.array([place for places in members for place in places], np.int64),
            pairs=0,
        )


class _History:
    """What each rank's ring still knows of each group: the first sequence number it holds."""

    def __init__(self, lists: list[Issued]) -> None:
        self.lists = lists
        self._first: dict[int, dict[int, int]] = {}
        self._pg_of: dict[int, int] = {}  # as a rule the recorders of all ranks number a group alike
        for one in reversed(lists):
            self._pg_of |= one.pg_of

    def lost(self, place: int, group: int, number: int) -> bool:
        """Whether the rank's part was recorded once and has been dropped since."""
        one = self.lists[place]
        if not one.lost:
            return False
        if place not in self._first:
            groups, at = np.unique(one.group[one.source < 0], return_index=True)
            numbers = one.sequence[one.source < 0][at]
            self._first[place] = dict(zip(groups.tolist(), numbers.tolist(), strict=True))
        first = self._first[place].get(group)
        if first is not None:
            return number < first
        last = one.last_enqueued.get(self._pg_of.get(group, -1))
        return last is None or number <= last


def _with_extra(part_ptr: Any, part_op: Any, op_rank: Any, extra: dict[int, list[int]]) -> tuple[Any, Any, Any]:
    """Slots from recorded parts and those never issued, which have operation -1."""
    slot_rank = op_rank[part_op]
    if not extra:
        return part_ptr, slot_rank, part_op
    added = np.zeros(len(part_ptr) - 1, np.int64)
    for i, never in extra.items():
        added[i] = len(never)
    at = np.repeat(part_ptr[1:][added > 0], added[added > 0])
    ranks = list(_in_order(extra))
    new_ptr = part_ptr + np.cumsum([0, *added.tolist()], dtype=np.int64)
    return new_ptr, np.insert(slot_rank, at, ranks), np.insert(part_op, at, -1)


def _in_order(extra: dict[int, list[int]]) -> Iterator[int]:
    for i in sorted(extra):
        yield from extra[i]
