"""What can never move again, and the certificate that says why.

While ranks run, a thread that isn't blocked may do anything, so hope spreads from it: a blocked thread has hope if all
it awaits has, an operation if all its parts can start, a part that isn't issued if any thread of its rank has. What is
left when hope has spread as far as it goes is stuck for good, whatever the running threads do next. That is a proof,
and needs no timeout. Once nothing runs, the wait graph of all that is left decides: with a cycle it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.model.certificate import Absent, Blocked, Certificate, Clash, Step, Where
from harness.model.graphs import components, shortest_cycle
from harness.model.progress import Instance, Part, Progress, Thread, differ

Node = Thread | Instance

# Above this many stuck nodes the certificate's cycle is a short one instead of the shortest.
_EXACT = 500


def outcome(progress: Progress) -> frozenset[str]:
    """How a settled world ended: one of completes, deadlock, missing, mismatch; silent_mix may stand beside it."""
    if not progress.settled():
        raise ValueError("the world has not settled: a thread can still move")
    if progress.mismatched:
        end = "mismatch"
    else:
        left = list(_nodes(progress))
        end = "completes" if not left else "deadlock" if components(left, _Waits(progress).successors) else "missing"
    return frozenset({end, "silent_mix"} if progress.mixed else {end})


def proof(progress: Progress) -> Certificate | None:
    """The certificate of what is stuck for good right now; None while everything may still move."""
    if progress.mismatched:
        stuck = _stuck(progress)
        return _certificate("mismatch", progress, stuck, [])
    if not _may_be_stuck(progress):
        return None
    stuck = _stuck(progress)
    if not stuck:
        return None
    waits = _Waits(progress, set(stuck))
    starts = None if len(stuck) <= _EXACT else 20
    cycle = shortest_cycle(stuck, waits.successors, starts=starts)
    return _certificate("deadlock" if cycle else "missing", progress, stuck, cycle or [])


def _nodes(progress: Progress) -> Iterator[Node]:
    for threads in progress.threads:
        yield from (thread for thread in threads.values() if not thread.ended)
    # A buffered send is complete though its recv may never come: nothing waits there.
    yield from (i for i in progress.instances.values() if any(not part.complete for part in i.parts))


def _may_be_stuck(progress: Progress) -> bool:
    """A cheap look that spares the search: something must be blocked, queued, or wanted of a rank that has ended."""
    for lane, threads in zip(progress.lanes, progress.threads, strict=True):
        if lane.queued or any(thread.blocked or thread.ended for thread in threads.values()):
            return True
    return False


# --- hope ---------------------------------------------------------------------------------------------------


def _stuck(progress: Progress) -> list[Node]:
    """The threads and incomplete instances that can never move, whatever the running threads do."""
    alive = {id(t) for threads in progress.threads for t in threads.values() if not t.ended and not t.blocked}
    pending = [node for node in _nodes(progress) if id(node) not in alive]
    hope = _Hope(progress, alive)
    while True:
        hope.walk_lanes()
        left = [node for node in pending if not hope.reaches(node)]
        if len(left) == len(pending):
            return left
        pending = left


class _Hope:
    """How far hope has spread: ids of threads that may move and of instances that may complete."""

    def __init__(self, progress: Progress, alive: set[int]) -> None:
        self.progress = progress
        self.alive = alive
        self.startable: set[int] = set()

    def walk_lanes(self) -> None:
        """Which queued parts may start: those with fewer hopeless operations ahead than the lane is wide."""
        width, buffered = self.progress.model.width, self.progress.model.buffered
        for lane in self.progress.lanes:
            if not lane.queued or width is None:
                continue
            hopeless = 0
            for part in lane:
                if hopeless >= width and not part.started:
                    break
                self.startable.add(id(part))
                if id(part.instance) not in self.alive and not (buffered and part.op.kind == "send"):
                    hopeless += 1

    def reaches(self, node: Node) -> bool:
        """Whether the node has hope now; if so it is counted among those alive."""
        there = self._instance(node) if isinstance(node, Instance) else self._thread(node)
        if there:
            self.alive.add(id(node))
        return there

    def _rank(self, rank: int) -> bool:
        return any(id(thread) in self.alive for thread in self.progress.threads[rank].values())

    def _instance(self, instance: Instance) -> bool:
        if instance.mismatched:
            return False
        return all(part.started or id(part) in self.startable for part in instance.parts) and all(
            self._rank(rank) for rank in instance.absent
        )

    def _thread(self, thread: Thread) -> bool:
        if thread.hears is not None:
            return self._rank(thread.hears)
        return all(self._part(part) for part in thread.awaits if not part.complete) and all(
            self._rank(rank) for rank in _unused(self.progress, thread)
        )

    def _part(self, part: Part) -> bool:
        if self.progress.model.buffered and part.op.kind == "send" and id(part) in self.startable:
            return True
        return id(part.instance) in self.alive


def _unused(progress: Progress, thread: Thread) -> Iterator[int]:
    """The ranks whose first use of a group the thread waits for."""
    for group in thread.first_use:
        yield from (rank for rank in group.ranks if rank not in progress.used[group])


# --- the wait graph -----------------------------------------------------------------------------------------


class _Waits:
    """Who waits for whom, among ``inside`` or among all."""

    def __init__(self, progress: Progress, inside: set[Node] | None = None) -> None:
        self.progress = progress
        self.inside = inside

    def successors(self, node: Node) -> Iterator[Node]:
        """What the node waits for, without repetition."""
        targets = dict.fromkeys(target for target, _ in self.edges(node))
        return (target for target in targets if self.inside is None or target in self.inside)

    def edges(self, node: Node) -> Iterator[tuple[Node, Part | None]]:
        """``(target, part)``: the part is the queued one, where that is why the node waits."""
        if isinstance(node, Instance):
            for part in node.parts:
                if not part.started:
                    yield from ((_instance_of(other), part) for other in self.progress.lanes[part.rank].ahead(part))
            for rank in node.absent:
                yield from self._threads(rank)
        elif node.hears is not None:
            yield from self._threads(node.hears)
        else:
            yield from ((_instance_of(part), None) for part in node.awaits if not part.complete)
            for rank in _unused(self.progress, node):
                yield from self._threads(rank)

    def _threads(self, rank: int) -> Iterator[tuple[Node, None]]:
        return ((thread, None) for thread in self.progress.threads[rank].values() if not thread.ended)


def _instance_of(part: Part) -> Instance:
    assert part.instance is not None
    return part.instance


# --- the certificate ----------------------------------------------------------------------------------------


def _certificate(end: str, progress: Progress, stuck: list[Node], cycle: list[Node]) -> Certificate:
    return Certificate(
        outcome=end,
        model=str(progress.model),
        cycle=tuple(_steps(progress, cycle)),
        clashes=tuple(_clash(instance) for instance in progress.mismatched),
        blocked=tuple(_blocked(progress, node) for node in stuck if isinstance(node, Thread)),
        unfinished=tuple(name(node) for node in stuck if isinstance(node, Instance)),
    )


def name(instance: Instance) -> str:
    """``all_gather EDP #0 (expert)``: operation, group, the how-manieth on it, and the label if it has one."""
    key = instance.key
    kinds = "/".join(dict.fromkeys(part.op.kind for part in instance.parts))
    if key.stream == "p":
        return f"{kinds} {key}{_labels(instance)}"
    if key.group is None:
        names = "/".join(dict.fromkeys(str(part.op.group) for part in instance.parts))
        return f"new_group {names} #{key.number}"
    return f"{kinds} {key}{_labels(instance)}"


def _labels(instance: Instance) -> str:
    labels = dict.fromkeys(part.op.label for part in instance.parts if part.op.label not in ("p2p", part.op.kind))
    return f" ({'/'.join(labels)})" if labels else ""


def _steps(progress: Progress, cycle: list[Node]) -> Iterator[Step]:
    """The cycle as what ranks hold up. An edge from a thread to an operation belongs to the step before it."""
    waits = _Waits(progress)
    first = min(range(len(cycle)), key=lambda at: _leader(cycle[at]), default=0)
    cycle = cycle[first:] + cycle[:first]
    for node, after, beyond in zip(cycle, cycle[1:] + cycle[:1], cycle[2:] + cycle[:2], strict=False):
        if isinstance(after, Thread):
            yield Step(
                rank=after.rank,
                thread=after.name,
                needs=_need(node, after),
                how=_how(after),
                behind=_standing(after, beyond),
                where=where(after.where),
            )
        elif isinstance(node, Instance):
            part = next(part for target, part in waits.edges(node) if target is after and part is not None)
            yield Step(part.rank, part.thread, name(node), "queued", name(after), where(part.where))


def _leader(node: Node) -> tuple[int, int]:
    """Which node a cycle is told from: the one of the lowest rank."""
    return (node.rank, 0) if isinstance(node, Thread) else (min(part.rank for part in node.parts), 1)


def _need(node: Node, of: Thread) -> str:
    """What ``node`` needs of the thread."""
    if isinstance(node, Instance):
        return name(node)
    if node.hears is not None:
        return f"tell {node.rank}"
    groups = [str(group) for group in node.first_use if of.rank in group.ranks]
    return "first use of " + ", ".join(groups)


def _how(thread: Thread) -> str:
    return "hears" if thread.hears is not None else "first_use" if thread.first_use else "blocked"


def _standing(thread: Thread, target: Node | None = None) -> str:
    if thread.hears is not None:
        return f"hear {thread.hears}"
    if thread.first_use:
        return "first use of " + ", ".join(map(str, thread.first_use))
    if isinstance(target, Instance):
        return name(target)
    return ", ".join(name(_instance_of(part)) for part in thread.awaits if not part.complete)


def _blocked(progress: Progress, thread: Thread) -> Blocked:
    if thread.hears is not None or thread.first_use:
        ranks = [thread.hears] if thread.hears is not None else list(_unused(progress, thread))
        absent = [Absent(rank, _instead(progress, rank)) for rank in dict.fromkeys(ranks)]
        return Blocked(thread.rank, thread.name, (_standing(thread),), tuple(absent), where(thread.where))
    instances = [_instance_of(part) for part in thread.awaits if not part.complete]
    ranks_absent: dict[int, str] = {}
    for instance in instances:
        for part in instance.parts:
            if not part.started:
                first = next(progress.lanes[part.rank].ahead(part))
                ranks_absent.setdefault(part.rank, f"queued it behind {name(_instance_of(first))}")
        for rank in instance.absent:
            ranks_absent.setdefault(rank, _instead(progress, rank))
    return Blocked(
        thread.rank,
        thread.name,
        tuple(name(instance) for instance in instances),
        tuple(Absent(rank, instead) for rank, instead in ranks_absent.items()),
        where(thread.where),
    )


def _instead(progress: Progress, rank: int) -> str:
    threads = progress.threads[rank].values()
    alive = [thread for thread in threads if not thread.ended]
    if not alive:
        return "ended"
    if len(threads) == 1:
        return _state(alive[0])
    return "; ".join(f"thread {thread.name}: {_state(thread)}" for thread in alive)


def _state(thread: Thread) -> str:
    return f"waiting for {_standing(thread)}" if thread.blocked else "still running"


def _clash(instance: Instance) -> Clash:
    left = instance.first
    assert left is not None
    right = next(part for part in instance.parts if part.started and differ(part.op, left.op))
    return Clash(
        instance=str(instance.key),
        left_rank=left.rank,
        left=signature(left),
        right_rank=right.rank,
        right=signature(right),
        left_where=where(left.where),
        right_where=where(right.where),
    )


def signature(part: Part) -> str:
    """All that parts of one instance must agree in."""
    op = part.op
    subject = str(op.group) if op.kind == "new_group" else op.group.name
    root = "" if op.root is None else f" root={op.root}"
    return f"{op.kind} {subject}{root} n={op.n} dtype={op.dtype}"


def where(frames: object) -> Where:
    """Frames in the form a certificate keeps."""
    if not frames:
        return ()
    return tuple((str(file), int(line), str(function)) for file, line, function in frames)  # type: ignore[attr-defined]
