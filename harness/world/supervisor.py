"""Turns what ranks report into grants, and into proof when nothing can come of waiting any more.

One `Supervisor` serves one epoch (one task of a world). It is pure: messages in, messages out, evidence lines to a
sink. Whoever owns the channels (`harness.world.world`) feeds it and carries out what it returns.

A model over a transport (``spec.granting``) moves an operation's data only once all its parts may start, so the
model's word is what happens. A real engine is only listened to, and may be ahead of the model: a sender's part of a
gather is done on gloo before the others have come. An event of a thread that the model holds to be blocked is kept
until the model catches up; where the model sees no way on, the event is right and the model is told
(`Progress.resume`). A proof about a real engine is therefore open to contradiction until its ranks are stopped.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from harness import errors
from harness.backends.spec import BackendSpec
from harness.model import explain
from harness.model.certificate import Certificate
from harness.model.operation import Operation
from harness.model.progress import Instance, Part, Progress
from harness.model.proof import proof
from harness.record import lines
from harness.world.messages import (
    Complete,
    Events,
    Finished,
    Frame,
    Grant,
    Issue,
    Note,
    Probe,
    Release,
    Sent,
    Stop,
    ThreadEnd,
    ThreadStart,
    Wait,
)

Outbox = list[tuple[int, Any]]
Record = tuple[Any, ...]

_ERRORS: dict[str, type[errors.VerdictError]] = {
    "deadlock": errors.DeadlockError,
    "missing": errors.MissingRankError,
    "mismatch": errors.MismatchError,
}


class _Rank:
    """What the supervisor keeps of one rank: its tables of packed events, its parts, and events held back."""

    def __init__(self) -> None:
        self.ops: dict[int, Operation] = {}
        self.stacks: dict[int, tuple[Frame, ...]] = {0: ()}
        self.parts: dict[int, Part] = {}  # by sequence number; those that are not complete
        self.held: deque[Record] = deque()
        self.calls: dict[tuple[int, ...], tuple[Operation, ...]] = {}
        self.ended = False


class Supervisor:
    """Feeds one epoch's events to the model.

    ``sink`` gets every evidence line as a dict, when `write` is called, so that grants need not wait for a disk. With
    ``settle`` a proof is drawn only once nothing can move, as the outcome of a program is defined; otherwise as soon
    as something is stuck for good. While ``restless``, `look` may find a proof: call it when no message is waiting.
    """

    def __init__(
        self,
        world: int,
        epoch: int,
        spec: BackendSpec,
        *,
        sink: Callable[[dict[str, Any]], None] | None,
        settle: bool = False,
    ) -> None:
        self.world, self.epoch, self.spec = world, epoch, spec
        self.certificate: Certificate | None = None
        self.error: errors.HarnessError | None = None
        self.progress = Progress(spec.model, world)
        self.mixed: list[Instance] = []  # complete ones whose parts carry different data
        self._sink, self._settle = sink, settle
        self._lines: list[tuple[int, Record] | lines.Line] = [lines.world(world, epoch, spec, settle)]
        self._texts = lines.Texts()
        self._ranks = [_Rank() for _ in range(world)]
        self._out: Outbox = []
        self._first_uses: set[tuple[int, str]] = set()
        self._hears: set[tuple[int, str]] = set()
        self.restless = False

    # --- what happens ---------------------------------------------------------------------------------------

    def handle(self, rank: int, message: Any) -> Outbox:
        """Take one message of ``rank``; returns what to send, in order. Messages of other epochs are dropped."""
        if message.epoch != self.epoch:
            return []
        for record in self._unpack(message):
            if record[0] == "s":
                _, seq, thread, op, where, others, ns = record
                self._accept(rank, ("i", seq, thread, (op,), where, ns))
                self._accept(rank, ("w", thread, (seq,), where, others, ns))
            else:
                self._accept(rank, record)
        return self._conclude()

    def look(self) -> Outbox:
        """Draw the proof if something is stuck for good by now; returns what to send.

        Ranks of a real engine are asked for the events that they hold back.
        """
        if not self.spec.granting and self.error is None:
            self._out += [(rank, Probe(self.epoch)) for rank, state in enumerate(self._ranks) if not state.ended]
        if self.restless and self.error is None:
            self.restless = False
            self._judge()
        return self._flush()

    @property
    def unwritten(self) -> int:
        """How many lines of evidence `write` would hand on."""
        return len(self._lines)

    def write(self) -> None:
        """Hand the evidence of what happened so far to the sink."""
        pending, self._lines = self._lines, []
        if self._sink is None or not pending:
            return
        write_text = getattr(self._sink, "write_text", None)
        if write_text is not None:
            rows = [lines.text(item) if isinstance(item, dict) else self._texts.event(*item) for item in pending]
            write_text("".join([row + "\n" for row in rows if row]))
            return
        for item in pending:
            line = item if isinstance(item, dict) else lines.event(*item)
            if line is not None:
                self._sink(line)

    def replay(self, rank: int, record: Record) -> None:
        """Take one event that was recorded before, as `harness.record.lines.record_of` gives it."""
        self._accept(rank, record)
        self._conclude()

    def rank_ended(self, rank: int, how: str) -> Outbox:
        """The rank's process is gone before its task was done; ``how`` says by what (``signal 9``, ``exit 0``)."""
        self._end(rank)
        if self.error is not None:
            return self._flush()
        error = errors.RankDiedError(f"rank {rank} ended before its task was done: {how}")
        return self._stop(error, skip=rank)

    def interrupt(self, error: errors.HarnessError) -> Outbox:
        """Stop the epoch for a reason of the caller's (a time limit): every blocked call raises ``error``."""
        return self._stop(error) if self.error is None else self._flush()

    @property
    def tainted(self) -> bool:
        """Whether a real engine was left with half-met operations, which would meet those of the next task."""
        return not self.spec.granting and bool(self.progress.instances)

    @property
    def stopped(self) -> bool:
        """Whether ranks were told to stop."""
        return self.error is not None

    # --- one event ------------------------------------------------------------------------------------------

    @staticmethod
    def _unpack(message: Any) -> Iterable[Record]:
        match message:
            case Events():
                return message.records
            case Issue():
                return (("i", message.seq, message.thread, message.ops, message.where, message.ns),)
            case Wait():
                return (("w", message.thread, message.seqs, message.where, message.others, message.ns),)
            case Complete():
                return (("c", message.seq, message.ns),)
            case ThreadStart():
                return (("b", message.thread, message.ns),)
            case ThreadEnd():
                return (("e", message.thread, message.ns),)
            case Note():
                return (("n", message.name, message.value, message.ns),)
            case Finished():
                return (("end", message.ok, message.ns),)
        raise TypeError(f"a rank sent {message!r}, which no supervisor takes")

    def _accept(self, rank: int, record: Record) -> None:
        """Keep the event's evidence, and feed it to the model unless the model lags behind a real engine."""
        state = self._ranks[rank]
        kind = record[0]
        if kind == "o":
            state.ops[record[1]] = record[2]
            return
        if kind == "f":
            state.stacks[record[1]] = record[2]
            return
        record = self._resolve(state, record)
        if self._sink is not None:
            self._lines.append((rank, record))
        if self.error is not None or kind in "nc":
            return
        self.restless = self.restless or self.certificate is not None
        if state.held or not self._feed(rank, record):
            state.held.append(record)

    @staticmethod
    def _resolve(state: _Rank, record: Record) -> Record:
        """The record with numbers replaced by the operations and stacks they stand for."""
        kind = record[0]
        if kind == "i" and type(record[4]) is int:
            _, seq, thread, ops, where, ns = record
            calls = state.calls.get(ops)
            if calls is None:
                calls = state.calls[ops] = tuple([state.ops[number] for number in ops])
            return (kind, seq, thread, calls, state.stacks[where], ns)
        if kind in "wh" and type(record[3]) is int:
            return (*record[:3], state.stacks[record[3]], *record[4:])
        return record

    def _feed(self, rank: int, record: Record) -> bool:
        """Hand the event to the model. False if it must wait, since the model holds its thread to be blocked."""
        kind = record[0]
        if kind == "end":
            if not self._may_end(rank):
                return False
            self._end(rank)
            return True
        thread = record[1] if kind in "wbeth" else record[2]
        known = self.progress.threads[rank].get(thread)
        if known is not None and known.ended:
            return True  # it was said to have ended, as some threads do while they still run finalizers
        if known is not None and known.blocked:
            if not self.spec.granting:
                return False
            self.progress.resume(rank, thread)  # a wait with a time limit of its own that ran out
        getattr(self, "_on_" + kind)(rank, thread, record)
        return True

    def _on_i(self, rank: int, thread: str, record: Record) -> None:
        parts = self.progress.issue(rank, record[3], thread, record[4])
        self._ranks[rank].parts.update((part.seq, part) for part in parts)
        if self.progress.model.name == "first_use":
            if self.progress.blocked(rank, thread):
                self._first_uses.add((rank, thread))
                self.restless = True
            else:
                self._out.append((rank, Release(self.epoch, thread)))
        elif self.progress.model.name == "host_blocking":
            self.restless = True

    def _on_w(self, rank: int, thread: str, record: Record) -> None:
        for other in record[4]:
            self.progress.expect_thread(rank, other)
        parts = self._ranks[rank].parts
        awaited = [parts[seq] for seq in record[2] if seq in parts]
        if not self.progress.wait(rank, awaited, thread, record[3]) and not all(map(self._under_way, awaited)):
            self.restless = True

    def _under_way(self, part: Part) -> bool:
        """Whether the part needs nothing but that ranks which run freely issue theirs: a thread that waits for such
        parts is not stuck, and so takes nobody's hope away. Spares the search for a proof in the common case."""
        instance = part.instance
        if part.complete:
            return True
        if instance is None or instance.mismatched or instance.started < len(instance.parts):
            return False
        lanes, threads = self.progress.lanes, self.progress.threads
        return all(
            not lanes[rank].running and any(not t.ended and not t.blocked for t in threads[rank].values())
            for rank in instance.absent
        )

    def _on_b(self, rank: int, thread: str, record: Record) -> None:
        self.progress.expect_thread(rank, thread)

    def _on_e(self, rank: int, thread: str, record: Record) -> None:
        if thread in self.progress.threads[rank]:
            self.progress.end(rank, thread)
            self.restless = True

    def _on_t(self, rank: int, thread: str, record: Record) -> None:
        self.progress.tell(rank, record[2])

    def _on_h(self, rank: int, thread: str, record: Record) -> None:
        if self.progress.hear(rank, record[2], thread, record[3]):
            self._out.append((rank, Release(self.epoch, thread)))
        else:
            self._hears.add((rank, thread))
            self.restless = True

    def _may_end(self, rank: int) -> bool:
        """Whether the model agrees that the rank's threads can have come to their end."""
        return self.spec.granting or not any(t.blocked for t in self.progress.threads[rank].values())

    def _end(self, rank: int) -> None:
        if self._ranks[rank].ended:
            return
        self._ranks[rank].ended = True
        for name, thread in self.progress.threads[rank].items():
            if thread.blocked:
                self.progress.resume(rank, name)
            if not thread.ended:
                self.progress.end(rank, name)
        self.restless = True

    # --- what follows ---------------------------------------------------------------------------------------

    def _conclude(self) -> Outbox:
        """Grants and releases due to the latest events, and the proof if there is one now."""
        if self.error is not None:
            return self._flush()
        self._follow()
        while any(state.held for state in self._ranks):
            if not self._catch_up() and not self._overrule():
                break
            self._follow()
        if self._out or not self.spec.granting:
            return self._flush()  # something moves; whether something else is stuck can be looked at after
        return self.look()

    def _follow(self) -> None:
        changes = self.progress.drain()
        if changes.mismatched:
            self.restless = True
        self.mixed += changes.mixed
        for part in changes.completed:
            self._ranks[part.rank].parts.pop(part.seq, None)
        if self.spec.granting:
            self._grant(changes.instances)
            self._let_sends_go(changes.completed)
        for thread in changes.released:
            key = (thread.rank, thread.name)
            for waiting in (self._first_uses, self._hears):
                if key in waiting:
                    waiting.remove(key)
                    self._out.append((thread.rank, Release(self.epoch, thread.name)))

    def _grant(self, instances: list[Instance]) -> None:
        seqs: dict[int, list[int]] = {}
        for instance in instances:
            for part in instance.parts:
                seqs.setdefault(part.rank, []).append(part.seq)
        for rank, granted in seqs.items():
            self._out.append((rank, Grant(self.epoch, tuple(granted))))
            if self._sink is not None:
                self._lines.append(lines.grant(rank, tuple(granted)))

    def _let_sends_go(self, completed: list[Part]) -> None:
        if not self.progress.model.buffered:
            return
        seqs: dict[int, list[int]] = {}
        for part in completed:
            if part.op.kind == "send" and part.instance is not None and not part.instance.complete:
                seqs.setdefault(part.rank, []).append(part.seq)
        self._out += [(rank, Sent(self.epoch, tuple(sent))) for rank, sent in seqs.items()]

    def _catch_up(self) -> bool:
        """Feed held events that the model now agrees to; whether there were any."""
        moved = False
        for rank, state in enumerate(self._ranks):
            while state.held and self._feed(rank, state.held[0]):
                state.held.popleft()
                moved = True
        return moved

    def _overrule(self) -> bool:
        """Where the model sees no way on, let threads go on that have gone on in fact; whether there were any.

        Only where it is stuck: as a rule the event that lets the thread go on is under way from another rank.
        """
        if not self.progress.settled() and proof(self.progress) is None:
            return False
        self.restless = True
        for rank, state in enumerate(self._ranks):
            if state.held:
                record = state.held[0]
                for name in list(self.progress.threads[rank]) if record[0] == "end" else [_thread(record)]:
                    if self.progress.blocked(rank, name):
                        self.progress.resume(rank, name)
        return True

    def _judge(self) -> None:
        """Draw the proof, if something is stuck for good."""
        if self._settle and not self.progress.settled():
            return
        certificate = proof(self.progress)
        if not self.spec.granting:
            if certificate != self.certificate:
                self.certificate = certificate
                self._lines.append(lines.certificate(certificate, time.monotonic_ns()))
            return
        if certificate is None:
            return
        self.certificate = certificate
        self._lines.append(lines.certificate(certificate, time.monotonic_ns()))
        self._out += self._stop(_ERRORS[certificate.outcome](explain.certificate(certificate), certificate))

    def _stop(self, error: errors.HarnessError, skip: int | None = None) -> Outbox:
        self.error = error
        stop = Stop(self.epoch, pickle.dumps(error))
        self._out += [(rank, stop) for rank in range(self.world) if rank != skip]
        return self._flush()

    def _flush(self) -> Outbox:
        out, self._out = self._out, []
        return out


def _thread(record: Record) -> str:
    name: str = record[1] if record[0] in "wbeth" else record[2]
    return name
