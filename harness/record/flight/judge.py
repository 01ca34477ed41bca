"""What dumps say: whether the order was cyclic though nothing hung, and what each progress model makes of it.

A dump records what was issued, not where the host waited. So every call is judged as asynchronous, and a rank with
operations recorded as incomplete is taken to wait for all it issued; one without has nothing more to issue. What is
assumed beyond that (rings that lost entries, ranks without a dump) is said in the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.model.certificate import Absent, Blocked, Certificate, Clash, Step, Where
from harness.model.fast import ENDED, FIRST_USE, State, run, settings
from harness.model.graphs import shortest_cycle
from harness.model.operation import InstanceKey
from harness.model.order import Before, OrderVerdict, common_order
from harness.model.peel import core
from harness.model.progress import Model
from harness.record.flight import folder as folders
from harness.record.flight.align import Matched, match

#: Threads listed in a certificate; the rest are counted by whoever prints it.
_BLOCKED = 16
#: Above this many operations on cycles the cycle shown is a short one, not the shortest.
_EXACT = 3000


@dataclass(frozen=True)
class Judgement:
    """``order`` over all groups at once, ``models`` maps each to (outcomes, certificate), ``assumed`` are sentences.

    ``places`` are the lines of code of the order's cycle, for each link those of its first and its second call, and
    ``followers`` the ranks that issue the link's two calls in its order. ``common`` is an order of the cycle's
    instances that every rank could follow, if there is one.
    """

    ranks: tuple[int, ...]
    operations: int
    incomplete: int
    order: OrderVerdict
    names: dict[InstanceKey, str]
    places: tuple[tuple[Where, Where], ...]
    followers: tuple[tuple[int, ...], ...]
    common: tuple[InstanceKey, ...]
    models: dict[str, tuple[frozenset[str], Certificate | None]]
    assumed: tuple[str, ...]


def judge(path: Path, models: Sequence[str] | None = None) -> Judgement:
    """Judge a folder of dumps. Raises InputError where one cannot be used."""
    paths = folders.files(path)
    matched = match(folders.load(path))
    frames = Frames(paths, matched)
    _, left = core(
        matched.arrays.op_ptr, matched.op_step, matched.arrays.op_instance, matched.part_ptr, matched.part_op
    )
    around, cycle, places = _order(matched, left, frames)
    sends = bool(matched.arrays.op_send.any())
    chosen = models or default_models(sends)
    return Judgement(
        ranks=matched.ranks,
        operations=len(matched.op_entry),
        incomplete=int(np.count_nonzero(~matched.op_done)),
        order=OrderVerdict("cyclic" if len(left) else "consistent", tuple(cycle)),
        names={matched.key(i): f"{matched.kind(i)} {matched.key(i)}" for i in around},
        places=tuple(places),
        followers=tuple(_followers(matched, link) for link in zip(around, around[1:] + around[:1], strict=True)),
        common=tuple(_common(matched, around)),
        models={name: _under(matched, name, frames) for name in chosen},
        assumed=(
            "host waits are not recorded: every call is judged as asynchronous"
            + ("; ranks with incomplete calls wait for all they issued" if not matched.op_done.all() else ""),
            *matched.notes,
        ),
    )


def default_models(sends: bool) -> list[str]:
    """The models worth a look: buffered sends only where something is sent."""
    names = ["independent", "lane", "lanes:2", "host_blocking", "first_use"]
    return names + [f"{name}+buffered" for name in names] if sends else names


class Frames:
    """Lines of code of single operations, from files read again: frames are never all in memory."""

    def __init__(self, paths: dict[int, Path], matched: Matched) -> None:
        self._paths, self._matched = paths, matched
        self._known: dict[int, Where] = {}

    def of(self, op: int) -> Where:
        """The frames of an operation, innermost first, from the first outside torch."""
        if op not in self._known:
            rank = self._matched.ranks[int(self._matched.arrays.op_rank[op])]
            self._known[op] = _frames(folders.frames(self._paths[rank], int(self._matched.op_entry[op])))
        return self._known[op]


def _frames(value: Any) -> Where:
    if not isinstance(value, list | tuple):
        return ()
    frames: list[tuple[str, int, str]] = []
    for frame in value[:64]:
        if isinstance(frame, dict) and isinstance(frame.get("line"), int):
            file = str(frame.get("filename", ""))
            if frames or "/torch/" not in file:
                frames.append((file, frame["line"], str(frame.get("name", ""))))
    return tuple(frames)


# --- order --------------------------------------------------------------------------------------------------


def _order(matched: Matched, left: Any, frames: Frames) -> tuple[list[int], list[Before], list[tuple[Where, Where]]]:
    """A shortest cycle of "issued before" among the instances left on or between cycles: instances, links, lines."""
    if not len(left):
        return [], [], []
    inside = set(left.tolist())
    rank_of, instance_of = matched.arrays.op_rank, matched.arrays.op_instance
    kept = np.isin(instance_of, left)
    held: dict[int, list[tuple[int, int, int]]] = {}  # rank -> (step, operation, instance), in order
    for op in np.flatnonzero(kept).tolist():
        held.setdefault(int(rank_of[op]), []).append((int(matched.op_step[op]), op, int(instance_of[op])))
    where = {op: at for calls in held.values() for at, (_, op, _) in enumerate(calls)}
    large = int(kept.sum()) > _EXACT

    def following(instance: int) -> Iterator[tuple[int, int, int]]:
        """(operation, later operation, its instance)."""
        for op in matched.part_op[matched.part_ptr[instance] : matched.part_ptr[instance + 1]].tolist():
            calls = held[int(rank_of[op])]
            step = matched.op_step[op]
            later = (call for call in calls[where[op] + 1 :] if call[0] > step and call[2] != instance)
            for _, other, target in islice(later, 4 if large else None):
                yield op, other, target

    cycle = shortest_cycle(
        sorted(inside), lambda i: (target for _, _, target in following(i)), starts=20 if large else None, least=2
    )
    assert cycle is not None, "what is left after both ways of peeling holds a cycle"
    links, places = [], []
    for first, then in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        op, other = next((op, other) for op, other, target in following(first) if target == then)
        rank = matched.ranks[int(rank_of[op])]
        at = (int(matched.op_step[op]), int(matched.op_step[other]))
        links.append(Before(rank, "main", matched.key(first), matched.key(then), at))
        places.append((frames.of(op), frames.of(other)))
    return cycle, links, places


def _steps(matched: Matched, instance: int) -> dict[int, int]:
    """The call with which each rank issued its part."""
    ops = matched.part_op[matched.part_ptr[instance] : matched.part_ptr[instance + 1]]
    return dict(zip(matched.arrays.op_rank[ops].tolist(), matched.op_step[ops].tolist(), strict=True))


def _followers(matched: Matched, link: tuple[int, int]) -> tuple[int, ...]:
    """The ranks that issued the first of two instances before the second."""
    first, then = (_steps(matched, instance) for instance in link)
    return tuple(matched.ranks[p] for p in sorted(first.keys() & then.keys()) if first[p] < then[p])


def _common(matched: Matched, around: list[int]) -> list[InstanceKey]:
    """One order of these instances that every rank could follow: that of most ranks, if calls on a group allow it."""
    keys: dict[tuple[int, str], list[tuple[InstanceKey, ...]]] = {}
    calls: dict[int, list[tuple[int, int]]] = {}
    for instance in around:
        for place, step in _steps(matched, instance).items():
            calls.setdefault(place, []).append((step, instance))
    most = Counter(tuple(i for _, i in sorted(mine)) for mine in calls.values() if len(mine) > 1).most_common()
    for way, _ in most:
        keys[len(keys), "main"] = [(matched.key(i),) for i in way]
    return common_order(keys) or []


# --- models -------------------------------------------------------------------------------------------------


def _under(matched: Matched, name: str, frames: Frames) -> tuple[frozenset[str], Certificate | None]:
    state = run(matched.arrays, **settings(Model.parse(name)))
    outcomes = state.outcomes
    end = next(iter(outcomes - {"silent_mix"}))
    return outcomes, None if end == "completes" else _Stuck(matched, state, name, frames).certificate(end)


class _Stuck:
    """Turns the state a run ended in into a certificate."""

    def __init__(self, matched: Matched, state: State, model: str, frames: Frames) -> None:
        self.m, self.a, self.state = matched, matched.arrays, state
        self.model, self.frames = model, frames
        self._known: dict[int, list[tuple[int, int]]] = {}

    def certificate(self, end: str) -> Certificate:
        """Why the run ended so."""
        cycle = tuple(self._cycle()) if end == "deadlock" else ()
        return Certificate(
            outcome=end,
            model=self.model,
            cycle=cycle,
            clashes=tuple(self._clashes()) if end == "mismatch" else (),
            blocked=tuple(self._blocked({step.rank for step in cycle})),
            unfinished=tuple(self.name(i) for i in islice(self._unfinished(), _BLOCKED)),
        )

    def name(self, instance: int) -> str:
        return f"{self.m.kind(instance)} {self.m.key(instance)}"

    def _slots(self, instance: int) -> list[tuple[int, int]]:
        """(rank's place, operation or -1) of each part that has not started. Many ranks ask about few instances."""
        if instance not in self._known:
            here = slice(self.a.slot_ptr[instance], self.a.slot_ptr[instance + 1])
            places, ops = self.a.slot_rank[here], self.a.slot_op[here]
            waiting = (ops < 0) | (ops >= self.state.started[places])
            issued = np.where(ops < self.state.issued[places], ops, -1)
            pairs = zip(places[waiting].tolist(), issued[waiting].tolist(), strict=True)
            self._known[instance] = list(pairs)
        return self._known[instance]

    def _head(self, place: int) -> int | None:
        """The rank's first incomplete operation."""
        low, high = int(self.a.op_ptr[place]), int(self.state.issued[place])
        places = np.flatnonzero(~self.state.complete[low:high])
        return low + int(places[0]) if len(places) else None

    def _unfinished(self) -> Iterator[int]:
        issued = np.arange(len(self.a.op_rank)) < self.state.issued[self.a.op_rank]
        waiting = np.unique(self.a.op_instance[issued & ~self.state.complete])
        return iter(waiting.tolist())

    # --- the cycle ------------------------------------------------------------------------------------------

    def _cycle(self) -> Iterator[Step]:
        """A shortest cycle among the ranks' first incomplete operations; else the one that the search came upon."""
        heads = {p: h for p in range(self.a.world) if (h := self._head(p)) is not None}

        def waits(place: int) -> Iterator[int]:
            for other, op in self._slots(int(self.a.op_instance[heads[place]])):
                if other in heads and (op >= 0 or self.state.stands[other] != ENDED):
                    yield other

        by_heads = not (self.state.stands == FIRST_USE).any()
        short = shortest_cycle(list(heads), waits, starts=None if len(heads) <= 64 else 64) if by_heads else None
        if short:
            for before, place in zip(short[-1:] + short[:-1], short, strict=True):
                need = int(self.a.op_instance[heads[before]])
                yield self._step(place, need, int(self.a.op_instance[heads[place]]))
            return
        yield from self._found()

    def _found(self) -> Iterator[Step]:
        """The cycle that the search came upon, as steps."""
        first = self.a.world + len(self.a.op_instance)  # where instances begin among the nodes
        nodes = [n for n in self.state.cycle.tolist() if n < self.a.world or n >= first]
        for node, after, beyond in zip(nodes, nodes[1:] + nodes[:1], nodes[2:] + nodes[:2], strict=False):
            if after < self.a.world:
                needs = self.name(node - first) if node >= first else self._first_use(node, after)
                stands = self.name(beyond - first) if beyond >= first else self._first_use(after, beyond)
                head = self._head(after)
                where = self.frames.of(head) if head is not None else ()
                how = "blocked" if beyond >= first else "first_use"
                yield Step(self.m.ranks[after], "main", needs, how, stands, where)
            elif node >= first:
                need, behind = node - first, after - first
                queued = next(place for place, op in self._slots(need) if op >= 0 and self._has(place, behind))
                yield self._step(queued, need, behind)

    def _first_use(self, place: int, absent: int) -> str:
        """The first use at which a host stands, of a group that ``absent`` has not used."""
        ops = np.arange(self.state.low[place], self.state.high[place])
        groups = [self.m.group(int(g)) for g in self.a.op_group[ops]]
        return f"first use of {next(g for g in groups if self.m.ranks[absent] in g.ranks)}"

    def _has(self, place: int, instance: int) -> bool:
        ops = self.m.part_op[self.m.part_ptr[instance] : self.m.part_ptr[instance + 1]]
        return bool((self.a.op_rank[ops] == place).any())

    def _step(self, place: int, need: int, behind: int) -> Step:
        op = next((op for other, op in self._slots(need) if other == place), -1)
        held = op if op >= 0 else self._head(place)
        return Step(
            rank=self.m.ranks[place],
            thread="main",
            needs=self.name(need),
            how="queued" if op >= 0 else "blocked",
            behind=self.name(behind),
            where=self.frames.of(held) if held is not None else (),
        )

    # --- the rest -------------------------------------------------------------------------------------------

    def _blocked(self, first: set[int]) -> Iterator[Blocked]:
        """Some of the ranks that wait, those of the cycle first; a rank recorded as done waits for nothing."""
        places = sorted(range(self.a.world), key=lambda place: self.m.ranks[place] not in first)
        waiting = ((place, head) for place in places if (head := self._head(place)) is not None)
        for place, head in islice(waiting, _BLOCKED):
            instance = int(self.a.op_instance[head])
            absent = tuple(Absent(self.m.ranks[p], self._instead(p, op)) for p, op in islice(self._slots(instance), 64))
            yield Blocked(self.m.ranks[place], "main", (self.name(instance),), absent, self.frames.of(head))

    def _instead(self, place: int, op: int) -> str:
        head = self._head(place)
        if op >= 0:
            return f"has it queued behind {self.name(int(self.a.op_instance[head]))}" if head is not None else "has it"
        if head is not None and self.state.stands[place] != ENDED:
            return f"has not issued it, and stands at {self.name(int(self.a.op_instance[head]))}"
        last = int(self.state.issued[place]) - 1
        if last < self.a.op_ptr[place]:
            return "has issued nothing"
        return f"has not issued it; the last it issued is {self.name(int(self.a.op_instance[last]))}"

    def _clashes(self) -> Iterator[Clash]:
        """Instances whose started parts differ, the first few."""
        started = np.arange(len(self.a.op_rank)) < self.state.started[self.a.op_rank]
        lowest = np.full(len(self.a.slot_ptr) - 1, np.iinfo(np.int64).max)
        highest = np.full(len(self.a.slot_ptr) - 1, np.iinfo(np.int64).min)
        np.minimum.at(lowest, self.a.op_instance[started], self.a.op_sig[started])
        np.maximum.at(highest, self.a.op_instance[started], self.a.op_sig[started])
        for instance in np.flatnonzero(lowest < highest)[:_BLOCKED].tolist():
            ops = self.m.part_op[self.m.part_ptr[instance] : self.m.part_ptr[instance + 1]]
            ops = ops[started[ops]]
            left = int(ops[0])
            right = int(ops[self.a.op_sig[ops] != self.a.op_sig[left]][0])
            yield Clash(
                instance=str(self.m.key(instance)),
                left_rank=self.m.ranks[int(self.a.op_rank[left])],
                left=self.m.signature(left),
                right_rank=self.m.ranks[int(self.a.op_rank[right])],
                right=self.m.signature(right),
                left_where=self.frames.of(left),
                right_where=self.frames.of(right),
            )
