"""Every outcome a program can have under a model, over all interleavings of its threads.

Without threads all interleavings agree, and one run decides. With threads the search branches only where the order of
two threads of one rank can matter, and visits each state once: steps of different ranks commute (a step can enable
another rank's, never disable it), and so do steps of one rank that share no stream, queue or message.

A real engine that may let a rank go early (`harness.model.early`) adds steps of its own: it is done with a part. These
never disable another step either, so they are tried only where nothing else can move, or where threads race.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.model.certificate import Certificate
from harness.model.early import may_finish
from harness.model.execution import Execution, Host
from harness.model.operation import Group, Operation, stream_of
from harness.model.program import Call, Compute, DeviceSync, Hear, Program, Statement, Tell, Wait
from harness.model.progress import Model, Part
from harness.model.proof import outcome, proof

#: More states than this and the search gives up, loudly.
MAX_STATES = 200_000


class TooManyInterleavings(HarnessError):
    """The program's threads can interleave in more ways than the search follows; nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """``outcomes`` over all interleavings, and the certificate of the first found that isn't ``completes``."""

    model: str
    outcomes: frozenset[str]
    certificate: Certificate | None


def outcomes(program: Program, model: Model | str, *, early: bool = False) -> frozenset[str]:
    """The set of outcomes; with ``early`` also those of an engine that lets ranks go. Raises TooManyInterleavings."""
    return judge(program, model, early=early).outcomes


def judge(program: Program, model: Model | str, *, early: bool = False) -> Judgement:
    """The outcomes with a certificate. Linear in the program's length where no rank has two threads, unless it gets
    stuck with parts that an engine may be done with ``early``."""
    parsed = Model.parse(model) if isinstance(model, str) else model
    if all(len(program.threads(rank)) == 1 for rank in range(program.world)):
        execution = Execution(program, parsed)
        execution.run()
        if not early or not any(lane.running for lane in execution.progress.lanes):
            return Judgement(str(parsed), outcome(execution.progress), proof(execution.progress))
    return _Search(program, parsed, early=early).judgement()


#: What a schedule is made of: a thread's next step, or an engine's being done with the part of that number.
Move = tuple[str, int, int]


def _early(execution: Execution, *, awaited: bool) -> list[Part]:
    """Parts that an engine may be done with now: ``awaited`` by a thread or by the rest of a lane, or by nobody.

    The latter change nothing until somebody waits for them: till then it is the same whether they are done.
    """
    return [
        part
        for lane in execution.progress.lanes
        for part in lane.running
        if bool(part.waiters or lane.queued) == awaited and may_finish(part)
    ]


def _move(execution: Execution, move: Move) -> None:
    what, rank, number = move
    if what == "step":
        execution.step(execution.hosts[rank][number])
    else:
        part = next(part for part in execution.progress.lanes[rank].running if part.seq == number)
        execution.progress.finish_early(part)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a thread may still do, from a place in its program on."""

    streams: frozenset[Hashable] = frozenset()
    groups: frozenset[Group] = frozenset()
    hears: frozenset[int] = frozenset()
    syncs: bool = False

    def with_(self, statement: Statement) -> _Rest:
        match statement:
            case Call(ops):
                groups = {op.group for op in ops if op.kind != "new_group"}
                return _Rest(self.streams | {*map(stream_of, ops)}, self.groups | groups, self.hears, self.syncs)
            case Hear(rank):
                return _Rest(self.streams, self.groups, self.hears | {rank}, self.syncs)
            case DeviceSync():
                return _Rest(self.streams, self.groups, self.hears, True)
        return self


class _Search:
    """Depth first over schedules; a branch is re-run from the start, which is cheaper than copying states."""

    def __init__(self, program: Program, model: Model, *, early: bool) -> None:
        self.program = program
        self.model = model
        self.early = early
        self.rests = {
            (rank, thread): _rests(statements)
            for rank in range(program.world)
            for thread, statements in program.threads(rank).items()
        }
        self.found: set[str] = set()
        self.certificate: Certificate | None = None
        self.seen: set[Hashable] = set()

    def judgement(self) -> Judgement:
        pending: list[list[Move]] = [[]]
        while pending:
            schedule = pending.pop()
            execution = Execution(self.program, self.model)
            for move in schedule:
                _move(execution, move)
            pending += self._advance(execution, schedule)
        return Judgement(str(self.model), frozenset(self.found), self.certificate)

    def _advance(self, execution: Execution, schedule: list[Move]) -> list[list[Move]]:
        """Run on to the next place where schedules part, and return the schedules that go on from it."""
        while not execution.progress.settled():
            moves = self._moves(execution)
            if len(moves) != 1:
                break
            _move(execution, moves[0])
            schedule.append(moves[0])
        else:
            self._record(execution)
            moves = self._finishes(execution)
            if not moves:
                self._finish_rest(execution)
                return []
        key = execution.key()
        if key in self.seen:
            self.found |= {"silent_mix"} if execution.progress.mixed else set()
            return []
        self.seen.add(key)
        if len(self.seen) > MAX_STATES:
            raise TooManyInterleavings(f"{self.program.name}: more than {MAX_STATES} states under {self.model}")
        return [[*schedule, move] for move in moves]

    def _record(self, execution: Execution) -> None:
        ends = outcome(execution.progress)
        self.found |= ends
        if self.certificate is None and "completes" not in ends:
            self.certificate = proof(execution.progress)

    def _finishes(self, execution: Execution) -> list[Move]:
        if not self.early:
            return []
        return [("finish", part.rank, part.seq) for part in _early(execution, awaited=True)]

    def _finish_rest(self, execution: Execution) -> None:
        """Nobody waits for what is left to be done early, so it is in no cycle: the end is another one with all of it
        done, or the same as without."""
        rest = _early(execution, awaited=False) if self.early else []
        if rest:
            for part in rest:
                execution.progress.finish_early(part)
            self._record(execution)

    def _moves(self, execution: Execution) -> list[Move]:
        """The moves to branch over: one alone where it commutes with everything else, else one rank's, else all."""
        ready: list[Move] = []
        whole: list[Move] | None = None
        for rank, hosts in enumerate(execution.hosts):
            here: list[Move] = []
            for index, host in enumerate(hosts):
                if host.can_step:
                    if self._commutes(execution, host, hosts):
                        return [("step", rank, index)]
                    here.append(("step", rank, index))
            if here and len(here) == sum(not host.machine.ended for host in hosts):
                whole = whole or here
            ready += here
        return whole or ready + self._finishes(execution)

    def _commutes(self, execution: Execution, host: Host, hosts: list[Host]) -> bool:
        """Whether the host's next step commutes with all that the rank's other threads may still do."""
        others = [
            self.rests[other.rank, other.thread][max(other.at - 1, 0) if other.machine.backlog else other.at]
            for other in hosts
            if other is not host and not other.machine.ended
        ]
        hearing = {other.machine.hears for other in hosts if other is not host}
        if host.then or host.at == len(host.statements) or not others:
            return True
        match host.statements[host.at]:
            case Wait() | Tell() | Compute():
                return True
            case Hear(source):
                return source not in hearing and not any(source in other.hears for other in others)
            case DeviceSync():
                return not any(other.streams for other in others)
            case Call(ops):
                return self._call_commutes(execution, host.rank, ops, others)
        raise AssertionError("unreachable")

    def _call_commutes(self, execution: Execution, rank: int, ops: Sequence[Operation], others: list[_Rest]) -> bool:
        if any(other.syncs for other in others):
            return False
        if self.model.width is not None:
            return not any(other.streams for other in others)
        if self.model.name == "first_use":
            used = execution.progress.used
            fresh = {op.group for op in ops if op.kind != "new_group" and rank not in used.get(op.group, ())}
            if any(fresh & other.groups for other in others):
                return False
        return not any(stream_of(op) in other.streams for op in ops for other in others)


def _rests(statements: tuple[Statement, ...]) -> list[_Rest]:
    """For each place in the thread, what follows it."""
    rests = [_Rest()]
    for statement in reversed(statements):
        rests.append(rests[-1].with_(statement))
    return rests[::-1]
