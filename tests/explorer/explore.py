"""Every interleaving of a small program, tried: the definition of the progress models, slow and plain.

This is the oracle of ``harness.model`` and shares no code with it. A state is what every rank has issued, in order,
and where every thread stands. What has started and completed follows from what was issued: a part that has started
never un-starts, so the least fixpoint over the issue lists is what eager stepping reaches by any route.

Where the page of definitions leaves room, this file reads it so:

* A synchronous call under ``first_use`` stands at the first use, and only once that is over at the operation.
* ``new_group`` runs on the whole world, not on the group it creates: it is no first use of any group.
* ``hear`` of the own rank waits for all threads of that rank that haven't ended, the hearing one included.
* An incomplete buffered send (still queued) waits for its receive as well, as any incomplete operation does.
* ``device_sync`` waits for what the rank, all its threads, had issued when it was reached.
* An engine that lets ranks go ``early`` may be done with a part that needs no data any more: a send, what a root gives
  away, what goes to a root from elsewhere; and what comes from a root, once that has started.
* The order verdict takes any merge of a rank's threads, host messages or not; a batch stays together in a merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from .reading import Call, Source, Statement

MODELS = [
    model + p2p
    for p2p in ("", "+buffered")
    for model in ("independent", "lane", "lanes:2", "lanes:3", "host_blocking", "first_use")
]


class At(NamedTuple):
    """Where a thread stands: the next statement, and what it still waits for before that, first things first."""

    next: int
    waits: tuple[tuple[Any, ...], ...]  # ("first", groups) | ("operations", ids) | ("hear", peer, number)


class Engine(NamedTuple):
    """What follows from the issue lists."""

    started: set[int]
    complete: set[int]
    instances: dict[tuple[Any, ...], dict[tuple[Any, ...], int]]  # key -> part -> operation
    mismatch: bool
    mixed: bool


class Explorer:
    """All states of one program under one model."""

    def __init__(self, source: Source, model: str, break_rule: str = "", *, early: bool = False) -> None:
        name, _, p2p = model.partition("+")
        self.buffered = p2p == "buffered"
        self.capacity = {"lane": 1}.get(name, int(name[6:]) if name.startswith("lanes:") else 10**9)
        self.blocking, self.first_use = name == "host_blocking", name == "first_use"
        self.broken, self.early = break_rule, early
        self.world = source.world
        self.calls: list[Call] = []
        self.threads: list[tuple[int, list[tuple[Statement, tuple[int, ...]]]]] = []
        for rank, lists in enumerate(source.threads):
            for statements in lists:
                self.threads.append((rank, self._number(statements)))
        self.of_rank = [[t for t, (r, _) in enumerate(self.threads) if r == rank] for rank in range(self.world)]
        self._engines: dict[Any, Engine] = {}

    def _number(self, statements: list[Statement]) -> list[tuple[Statement, tuple[int, ...]]]:
        """Give each operation a number, and each wait the numbers it waits for."""
        numbered, handles = [], dict[str, tuple[int, ...]]()
        for statement in statements:
            ids: tuple[int, ...] = ()
            if statement.what == "issue":
                ids = tuple(range(len(self.calls), len(self.calls) + len(statement.calls)))
                self.calls += statement.calls
                if statement.handle:
                    handles[statement.handle] = ids
                if self.blocking:
                    # Call by call, the host waiting for each, handle or not.
                    alone = [Statement("issue", [call], waits=True) for call in statement.calls]
                    numbered += [(issue, (i,)) for issue, i in zip(alone, ids, strict=True)]
                    continue
            elif statement.what == "wait":
                ids = handles[statement.handle or ""]
            numbered.append((statement, ids))
        return numbered

    def outcomes(self) -> set[str]:
        """The union over all interleavings of what the program ends in."""
        found: set[str] = set()
        begin = self._settle(tuple(() for _ in range(self.world)), [At(0, ()) for _ in self.threads], frozenset())
        seen, todo = {begin}, [begin]
        while todo:
            issued, places, gone = state = todo.pop()
            movable = [t for t, at in enumerate(places) if not at.waits and at.next < len(self.threads[t][1])]
            following = [self._step(state, t) for t in movable]
            following += [self._settle(issued, list(places), gone | {i}) for i in self._may_go(issued, gone)]
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
            if not movable:
                found |= self._ending(issued, places, gone)
        return found

    def _may_go(self, issued: Any, gone: frozenset[int]) -> Iterator[int]:
        """What the engine may be done with on its rank, though the others' parts are not all there."""
        engine = self._engine(issued, gone)
        for i in engine.started - engine.complete if self.early else ():
            call = self.calls[i]
            kind, root = call.signature[:2]
            if call.part[0] == "send" or (kind in ("reduce", "gather") and call.rank != int(root)):
                yield i
            elif kind in ("broadcast", "scatter"):
                parts = next(parts for parts in engine.instances.values() if i in parts.values())
                if parts.get(("member", int(root))) in engine.started:
                    yield i

    def _step(self, state: Any, t: int) -> Any:
        """Thread ``t`` executes its next statement."""
        issued, places, gone = state
        rank, statements = self.threads[t]
        statement, ids = statements[places[t].next]
        waits: list[tuple[Any, ...]] = []
        if statement.what == "issue":
            if self.first_use:
                used = {self.calls[i].group for i in issued[rank]} | {None}
                fresh = {self.calls[i].group for i in ids} - used
                if fresh:
                    waits.append(("first", tuple(sorted(fresh))))  # type: ignore[type-var]
            if statement.waits:
                waits.append(("operations", ids))
            issued = tuple(row + ids if r == rank else row for r, row in enumerate(issued))
        elif statement.what == "wait":
            waits.append(("operations", ids))
        elif statement.what == "sync":
            waits.append(("operations", issued[rank]))
        elif statement.what == "hear":
            waits.append(("hear", statement.peer, 1 + self._count("hear", rank, statement.peer, places)))
        moved = list(places)
        moved[t] = At(places[t].next + 1, tuple(waits))
        return self._settle(issued, moved, gone)

    def _count(self, what: str, rank: int, peer: int, places: Any) -> int:
        """How often the threads of ``rank`` have executed ``what peer``."""
        executed = (s for t in self.of_rank[rank] for s, _ in self.threads[t][1][: places[t].next])
        return sum(s.what == what and s.peer == peer for s in executed)

    def _settle(self, issued: Any, places: list[At], gone: frozenset[int]) -> Any:
        """Drop every wait that is over."""
        engine = self._engine(issued, gone)
        for t, at in enumerate(places):
            if not at.waits:
                continue
            waits = at.waits
            while waits and self._over(waits[0], self.threads[t][0], issued, engine, places):
                waits = waits[1:]
            places[t] = At(at.next, waits)
        return issued, tuple(places), gone

    def _over(self, wait: tuple[Any, ...], rank: int, issued: Any, engine: Engine, places: Any) -> bool:
        if wait[0] == "operations":
            return engine.complete.issuperset(wait[1])
        if wait[0] == "hear":
            return self._count("tell", wait[1], rank, places) >= wait[2]
        return not self._absent(wait[1], issued)

    def _absent(self, groups: Any, issued: Any) -> set[int]:
        """Members that have not used one of the groups."""
        return {r for g in groups for r in g[1] if all(self.calls[i].group != g for i in issued[r])}

    def _engine(self, issued: Any, gone: frozenset[int]) -> Engine:
        if (issued, gone) in self._engines:
            return self._engines[issued, gone]
        instances: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = {}
        key_of: dict[int, tuple[Any, ...]] = {}
        for row in issued:
            counts: dict[tuple[Any, ...], int] = {}
            for i in row:
                call = self.calls[i]
                stream = (call.stream, call.part)
                key_of[i] = (call.stream, counts.setdefault(stream, 0))
                counts[stream] += 1
                instances.setdefault(key_of[i], {})[call.part] = i
        started: set[int] = set()
        complete: set[int] = set(gone)
        growing = True
        while growing:
            before = len(started) + len(complete)
            for row in issued:
                open_before = 0
                for i in row:
                    if open_before < self.capacity or self.broken == "no queue":
                        started.add(i)
                    open_before += i not in complete
            for parts in instances.values():
                complete |= self._completing(parts, started)
            growing = len(started) + len(complete) > before
        mismatch = any(self._differ(parts, started) for parts in instances.values())
        mixed = any(
            len({self.calls[i].label for i in parts.values()}) > 1
            for parts in instances.values()
            if len(parts) == len(self.calls[next(iter(parts.values()))].parts)
            and complete.issuperset(parts.values())
            and not self._differ(parts, started)
        )
        self._engines[issued, gone] = engine = Engine(started, complete, instances, mismatch, mixed)
        return engine

    def _differ(self, parts: dict[tuple[Any, ...], int], started: set[int]) -> bool:
        """Whether parts that have started cannot belong together."""
        return len({self.calls[i].signature for i in parts.values() if i in started}) > 1

    def _completing(self, parts: dict[tuple[Any, ...], int], started: set[int]) -> set[int]:
        """Which operations of an instance are complete."""
        done: set[int] = set()
        expected = self.calls[next(iter(parts.values()))].parts
        if all(p in parts and parts[p] in started for p in expected) and not self._differ(parts, started):
            done |= set(parts.values())
        if self.buffered:
            done |= {i for part, i in parts.items() if part[0] == "send" and i in started}
        return done

    def _ending(self, issued: Any, places: Any, gone: frozenset[int]) -> set[str]:
        """What a state that cannot move is."""
        engine = self._engine(issued, gone)
        ended = all(not at.waits for at in places)
        everything = {i for row in issued for i in row}
        if engine.mismatch:
            end = "mismatch"
        elif ended and engine.complete == everything:
            end = "completes"
        else:
            end = "deadlock" if has_cycle(self._waits(issued, places, engine)) else "missing"
        return {end, "silent_mix"} if engine.mixed else {end}

    def _waits(self, issued: Any, places: Any, engine: Engine) -> dict[Any, set[Any]]:
        """Who waits for whom: threads ("t", number) and incomplete operations ("o", number)."""

        def alive(ranks: set[int]) -> set[Any]:
            return {("t", t) for r in ranks for t in self.of_rank[r] if places[t].waits}

        edges: dict[Any, set[Any]] = {}
        for t, at in enumerate(places):
            if at.waits:
                kind, what = at.waits[0][:2]
                if kind == "operations":
                    edges["t", t] = {("o", i) for i in what if i not in engine.complete}
                elif kind == "hear":
                    edges["t", t] = alive({what})
                else:
                    edges["t", t] = alive(self._absent(what, issued))
        queue: dict[int, set[Any]] = {}  # operation -> earlier incomplete operations of its rank
        for row in issued:
            earlier: set[Any] = set()
            for i in row:
                queue[i] = set(earlier)
                if i not in engine.complete:
                    earlier.add(("o", i))
        for parts in engine.instances.values():
            for_whole: set[Any] = set()
            for part in self.calls[next(iter(parts.values()))].parts:
                if part not in parts:
                    for_whole |= alive({part[1]}) if self.broken != "no unissued" else set()
                elif parts[part] not in engine.started:
                    for_whole |= queue[parts[part]] if self.broken != "no queued" else set()
            edges |= {("o", i): for_whole for i in parts.values() if i not in engine.complete}
        return edges


def has_cycle(edges: dict[Any, set[Any]]) -> bool:
    """Whether a directed graph has a cycle: take away what nothing leads out of until nothing changes."""
    left = dict(edges)
    while True:
        stuck = {node: {n for n in nexts if n in left} for node, nexts in left.items()}
        left = {node: nexts for node, nexts in stuck.items() if nexts}
        if len(left) == len(stuck):
            return bool(left)


def outcomes(source: Source, model: str, break_rule: str = "", *, early: bool = False) -> set[str]:
    """The outcome set of a program under a model named as in program files."""
    return Explorer(source, model, break_rule, early=early).outcomes()


def order(source: Source) -> str:
    """``cyclic`` if some merge of each rank's threads makes the union of "issued before" cyclic."""
    choices = []
    for lists in source.threads:
        steps = [[s.calls for s in statements if s.what == "issue"] for statements in lists]
        choices.append({_before(merge) for merge in merges([len(s) for s in steps], steps)})
    for choice in product(*choices):
        edges: dict[Any, set[Any]] = {}
        for first, second in frozenset().union(*choice):
            edges.setdefault(first, set()).add(second)
            edges.setdefault(second, set())
        if has_cycle(edges):
            return "cyclic"
    return "consistent"


def merges(left: list[int], steps: list[list[Any]]) -> Iterator[list[tuple[int, Any]]]:
    """All ways to interleave the threads' steps, each as a list of (thread, step)."""
    if not any(left):
        yield []
    for t, count in enumerate(left):
        if count:
            step = steps[t][len(steps[t]) - count]
            left[t] -= 1
            for rest in merges(left, steps):
                yield [(t, step), *rest]
            left[t] += 1


def _before(merge: list[tuple[int, list[Call]]]) -> frozenset[Any]:
    """Pairs (instance, instance issued after it by the same thread); an instance is not before itself."""
    counts: dict[Any, int] = {}
    last: dict[int, list[list[Any]]] = {}
    for thread, step in merge:
        keys = []
        for call in step:
            stream = (call.stream, call.part)
            keys.append((call.stream, counts.setdefault(stream, 0)))
            counts[stream] += 1
        last.setdefault(thread, []).append(keys)
    return frozenset(
        (one, two)
        for steps in last.values()
        for j, later in enumerate(steps)
        for earlier in steps[:j]
        for one in earlier
        for two in later
        if one != two
    )
