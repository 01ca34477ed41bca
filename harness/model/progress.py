"""The progress model: when an issued operation starts, what completes, and where a host waits.

One incremental machine for three uses: live events while ranks run, a recorded trace, and programs before anything
runs. It knows nothing of transports, clocks or processes. `Progress` is fed ``issue``, ``wait``, ``tell``, ``hear``
and ``end``; after each it has already followed every consequence, and says what changed (`Progress.drain`).
What can never move again is the business of `harness.model.proof`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.model.operation import POINT_TO_POINT, Group, InstanceKey, Operation, key_of, stream_of

_MODEL = re.compile(r"(independent|lane|lanes:([1-9][0-9]*)|host_blocking|first_use)(\+buffered)?")


@dataclass(frozen=True, slots=True)
class Model:
    """A progress model: ``independent``, ``lane``, ``lanes:K``, ``host_blocking`` or ``first_use``.

    ``buffered`` lets a send complete as soon as it starts; otherwise it is a rendezvous with its recv.
    """

    name: str
    buffered: bool = False

    @classmethod
    def parse(cls, text: str) -> Model:
        """``lane``, ``lanes:2``, ``host_blocking+buffered``... Raises UsageError for anything else."""
        match = _MODEL.fullmatch(text)
        if match is None:
            raise UsageError(
                f"progress model {text!r} is unknown; accepted are independent, lane, lanes:K (K from 1), "
                "host_blocking and first_use, each also with +buffered"
            )
        return cls(match[1], match[3] is not None)

    def __str__(self) -> str:
        return self.name + ("+buffered" if self.buffered else "")

    @property
    def width(self) -> int | None:
        """How many operations of a rank may be incomplete at once; None if any number."""
        if self.name == "lane":
            return 1
        return int(self.name[6:]) if self.name.startswith("lanes:") else None


@dataclass(slots=True, eq=False)
class Part:
    """One rank's part of an instance."""

    rank: int
    seq: int
    op: Operation
    thread: str
    where: Any = None
    instance: Instance | None = None  # none until issued: under host_blocking a batch is issued call by call
    started: bool = False
    complete: bool = False
    waiters: list[Thread] = field(default_factory=list)

    @property
    def key(self) -> InstanceKey:
        assert self.instance is not None, "not issued yet"
        return self.instance.key


@dataclass(slots=True, eq=False)
class Instance:
    """The matched parts of one collective, one group creation, or one send with its recv."""

    key: InstanceKey
    size: int
    parts: list[Part] = field(default_factory=list)
    first: Part | None = None  # the first part that started: what the others must agree with
    started: int = 0
    mismatched: bool = False
    complete: bool = False

    @property
    def mixed(self) -> bool:
        """Parts that agree in everything else carry different data."""
        return len({part.op.label for part in self.parts}) > 1

    @property
    def absent(self) -> Iterator[int]:
        """Ranks (members of the group, or a pair's other side) that have not issued their part."""
        if self.key.stream == "p":
            kinds = {part.op.kind for part in self.parts}
            return (rank for rank, kind in ((self.key.src, "send"), (self.key.dst, "recv")) if kind not in kinds)
        here = {part.rank for part in self.parts}
        members: Iterable[int] = self.key.group.ranks if self.key.group is not None else range(self.size)
        return (rank for rank in members if rank not in here)


@dataclass(slots=True, eq=False)
class Thread:
    """One host thread of a rank. It is blocked while it awaits parts, a message or a first use."""

    rank: int
    name: str
    ended: bool = False
    awaits: list[Part] = field(default_factory=list)
    remaining: int = 0
    hears: int | None = None
    first_use: list[Group] = field(default_factory=list)
    backlog: deque[Part] = field(default_factory=deque)
    where: Any = None

    @property
    def blocked(self) -> bool:
        """Whether the host stands still here."""
        return self.remaining > 0 or self.hears is not None or bool(self.first_use)


@dataclass(slots=True)
class Changes:
    """What followed from the events since the last drain, each list in the order it happened."""

    started: list[Part] = field(default_factory=list)
    completed: list[Part] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    mixed: list[Instance] = field(default_factory=list)
    mismatched: list[Instance] = field(default_factory=list)
    released: list[Thread] = field(default_factory=list)  # from a first use or a message
    resumed: list[Thread] = field(default_factory=list)  # from waiting for operations


@dataclass(slots=True, eq=False)
class Lane:
    """A rank's incomplete operations in issue order: those started, then those queued behind them."""

    running: dict[Part, None] = field(default_factory=dict)
    queued: deque[Part] = field(default_factory=deque)

    def ahead(self, part: Part) -> Iterator[Part]:
        """The incomplete operations issued before ``part``."""
        yield from self.running
        for other in self.queued:
            if other is part:
                return
            yield other

    def __iter__(self) -> Iterator[Part]:
        yield from self.running
        yield from self.queued


class Progress:
    """The incremental machine, for ``world`` ranks under ``model``.

    A rank has the thread ``main`` from the start; further ones exist from `expect_thread` or their first event.
    Feeding an event for a thread that is blocked or has ended is a mistake of the caller and raises ValueError.
    """

    def __init__(self, model: Model | str, world: int) -> None:
        self.model = Model.parse(model) if isinstance(model, str) else model
        self.world = world
        self.threads: list[dict[str, Thread]] = [{"main": Thread(rank, "main")} for rank in range(world)]
        self.lanes = [Lane() for _ in range(world)]
        self.instances: dict[InstanceKey, Instance] = {}  # the incomplete ones
        self.mismatched: list[Instance] = []
        self.mixed = False
        self.used: dict[Group, set[int]] = {}
        self._width = self.model.width
        self._seq = [0] * world
        self._counts: list[dict[tuple[Any, ...], int]] = [{} for _ in range(world)]
        self._mail: dict[tuple[int, int], int] = {}
        self._hearing: dict[tuple[int, int], deque[Thread]] = {}
        self._first_users: dict[Group, list[Thread]] = {}
        self._changes = Changes()

    # --- events ---------------------------------------------------------------------------------------------

    def issue(self, rank: int, ops: Sequence[Operation], thread: str = "main", where: Any = None) -> list[Part]:
        """The thread issues ``ops``: one call, or the calls of one point-to-point batch.

        Returns their parts in order. The thread may be blocked afterwards (``host_blocking``, ``first_use``).
        """
        actor = self._running(rank, thread)
        parts = []
        for op in ops:
            parts.append(Part(rank, self._seq[rank], op, thread, where))
            self._seq[rank] += 1
        if self.model.name == "host_blocking":
            actor.backlog.extend(parts)
            self._start(self._replay(actor))
            return parts
        for part in parts:
            self._start(self._place(part))
        if self.model.name == "first_use":
            self._use(actor, ops, where)
        return parts

    def wait(self, rank: int, parts: Iterable[Part], thread: str = "main", where: Any = None) -> bool:
        """The thread waits for ``parts``. True if it may go on at once; otherwise it is blocked until they complete."""
        return not self._block(self._running(rank, thread), parts, where)

    def outstanding(self, rank: int) -> list[Part]:
        """Everything the rank has issued that is incomplete: what a device synchronization waits for."""
        return list(self.lanes[rank])

    def tell(self, rank: int, to: int) -> None:
        """A host message outside every group; never blocks."""
        hearing = self._hearing.get((rank, to))
        if not hearing:
            self._mail[rank, to] = self._mail.get((rank, to), 0) + 1
            return
        thread = hearing.popleft()
        thread.hears = None
        self._changes.released.append(thread)

    def hear(self, rank: int, source: int, thread: str = "main", where: Any = None) -> bool:
        """The thread waits for the next message of ``source``. True if it was there already."""
        actor = self._running(rank, thread)
        if self._mail.get((source, rank), 0):
            self._mail[source, rank] -= 1
            return True
        actor.hears, actor.where = source, where
        self._hearing.setdefault((source, rank), deque()).append(actor)
        return False

    def end(self, rank: int, thread: str = "main") -> None:
        """The thread will issue nothing more."""
        self._running(rank, thread).ended = True

    def finish_early(self, part: Part) -> None:
        """The rank's engine is done with its part, though other parts are missing (`harness.model.early`)."""
        self._start(self._complete(part))

    def expect_thread(self, rank: int, thread: str) -> None:
        """A thread exists that may still issue; until it ends or blocks, nothing that needs the rank is hopeless."""
        self.threads[rank].setdefault(thread, Thread(rank, thread))

    def resume(self, rank: int, thread: str) -> None:
        """The thread went on although it should be blocked: its engine is ahead of the model, or its wait timed out."""
        actor = self.threads[rank][thread]
        for part in actor.awaits:
            if actor in part.waiters:
                part.waiters.remove(actor)
        if actor.hears is not None:
            self._hearing[actor.hears, rank].remove(actor)
        for group in actor.first_use:
            self._first_users[group].remove(actor)
        actor.awaits, actor.remaining, actor.hears = [], 0, None
        actor.first_use.clear()
        actor.backlog.clear()

    # --- questions ------------------------------------------------------------------------------------------

    def blocked(self, rank: int, thread: str = "main") -> bool:
        """Whether the thread stands still."""
        return self.threads[rank][thread].blocked

    def settled(self) -> bool:
        """Whether nothing can move: every thread is blocked or has ended."""
        return all(t.ended or t.blocked for threads in self.threads for t in threads.values())

    def hearing(self, rank: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """For each source that several threads of the rank wait to hear, the threads in their order."""
        return tuple(
            (source, tuple(thread.name for thread in queue))
            for (source, to), queue in sorted(self._hearing.items())
            if to == rank and len(queue) > 1
        )

    def drain(self) -> Changes:
        """What changed since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    # --- consequences ---------------------------------------------------------------------------------------

    def _running(self, rank: int, name: str) -> Thread:
        thread = self.threads[rank].get(name)
        if thread is None:
            thread = self.threads[rank][name] = Thread(rank, name)
        if thread.ended or thread.blocked:
            state = "has ended" if thread.ended else "is blocked"
            raise ValueError(f"rank {rank}, thread {name}: an event came from a thread that {state}")
        return thread

    def _place(self, part: Part) -> list[Part]:
        """Match the part with its instance and put it into its rank's lane; returns it if it may start now."""
        counts = self._counts[part.rank]
        stream = stream_of(part.op)
        counts[stream] = counts.get(stream, -1) + 1
        key = key_of(part.rank, part.op, counts[stream])
        instance = self.instances.get(key)
        if instance is None:
            size = 2 if key.stream == "p" else self.world if key.group is None else len(key.group.ranks)
            instance = self.instances[key] = Instance(key, size)
        part.instance = instance
        instance.parts.append(part)
        lane = self.lanes[part.rank]
        if self._width is not None and len(lane.running) >= self._width:
            lane.queued.append(part)
            return []
        lane.running[part] = None
        return [part]

    def _start(self, parts: list[Part]) -> None:
        """Start ``parts`` and whatever can start because of what they complete."""
        starting = deque(parts)
        while starting:
            part = starting.popleft()
            instance = part.instance
            assert instance is not None
            part.started = True
            instance.started += 1
            self._changes.started.append(part)
            if instance.first is None:
                instance.first = part
            elif not instance.mismatched and differ(part.op, instance.first.op):
                instance.mismatched = True
                self.mismatched.append(instance)
                self._changes.mismatched.append(instance)
            if self.model.buffered and part.op.kind == "send":
                starting.extend(self._complete(part))
            if instance.started == instance.size and not instance.mismatched:
                starting.extend(self._finish(instance))

    def _finish(self, instance: Instance) -> list[Part]:
        instance.complete = True
        del self.instances[instance.key]
        self._changes.instances.append(instance)
        if instance.mixed:
            self.mixed = True
            self._changes.mixed.append(instance)
        return [follower for part in instance.parts if not part.complete for follower in self._complete(part)]

    def _complete(self, part: Part) -> list[Part]:
        """Complete ``part``; returns what may start now, because its lane has a place free or its host goes on."""
        part.complete = True
        self._changes.completed.append(part)
        lane = self.lanes[part.rank]
        del lane.running[part]
        following = []
        if lane.queued:
            following.append(lane.queued.popleft())
            lane.running[following[0]] = None
        for thread in part.waiters:
            thread.remaining -= 1
            if not thread.blocked:
                following += self._replay(thread)
                if not thread.blocked:
                    self._changes.resumed.append(thread)
        part.waiters.clear()
        return following

    def _block(self, thread: Thread, parts: Iterable[Part], where: Any) -> bool:
        thread.awaits = [part for part in dict.fromkeys(parts) if not part.complete]
        thread.remaining, thread.where = len(thread.awaits), where
        for part in thread.awaits:
            part.waiters.append(thread)
        return bool(thread.awaits)

    def _replay(self, thread: Thread) -> list[Part]:
        """Issue the next call of the thread's backlog, as ``host_blocking`` does: the host waits for each."""
        if not thread.backlog:
            return []
        part = thread.backlog.popleft()
        self._block(thread, [part], part.where)
        return self._place(part)

    def _use(self, thread: Thread, ops: Sequence[Operation], where: Any) -> None:
        """The first operation of a rank on a group blocks its host until every member has issued one."""
        for group in dict.fromkeys(op.group for op in ops if op.kind != "new_group"):
            users = self.used.setdefault(group, set())
            if thread.rank in users:
                continue
            users.add(thread.rank)
            waiting = self._first_users.setdefault(group, [])
            if len(users) < len(group.ranks):
                waiting.append(thread)
                thread.first_use.append(group)
                thread.where = where
                continue
            for other in waiting:
                other.first_use.remove(group)
                if not other.first_use:
                    self._changes.released.append(other)
            waiting.clear()


def differ(left: Operation, right: Operation) -> bool:
    """Whether two parts of one instance cannot belong together."""
    if (left.n, left.dtype) != (right.n, right.dtype):
        return True
    if left.kind in POINT_TO_POINT:
        return False  # a send and its recv: the match itself says they belong together
    return (left.kind, left.root) != (right.kind, right.root) or (
        left.kind == "new_group" and left.group != right.group
    )
