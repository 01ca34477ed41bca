"""One run of a task on a world: feeds the supervisor, watches the clock, and brings every run to an end."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.errors import RankFailedError, StoppedError
from harness.record import lines
from harness.world import processes
from harness.world.member import Member
from harness.world.messages import Finished, Task
from harness.world.outcome import Failure, RankOutcome, Run
from harness.world.spec import LOST_CHANNEL
from harness.world.supervisor import Supervisor
from harness.world.watchdog import take_stacks

if TYPE_CHECKING:
    from harness.world.world import World

#: After a rank failed, the others have so long to end by themselves before they are told to stop; in seconds.
AFTER_FAILURE = 0.7
#: After ranks of a model were told to stop, they have so long to return. Blocked calls raise at once; this is for
#: what the body does between its calls.
AFTER_STOP = 0.6
#: A rank whose channel is closed is given so long to turn out dead.
AFTER_CLOSE = 0.2
#: How often ``progress`` is called, in seconds.
PROGRESS = 1.0
#: With no message for so long, the supervisor looks whether something is stuck, and evidence is written; in seconds.
#: Ranks come first: what is written between two messages, they wait for.
LOOK = 0.001
#: So long the clock and the processes are not looked at while messages come thick, in seconds.
BUSY = 0.005
#: More lines of evidence than this are written though messages keep coming.
UNWRITTEN = 256
#: With no message for so long, ranks of a real engine are asked for what they hold back; twice as long the next time,
#: up to the second, after which they are asked though others are busy; in seconds.
PROBE, PROBE_MOST = 0.05, 1.0


class SafeSink:
    """Hands lines on until the receiver fails (a full disk): a run must not hang on its evidence."""

    def __init__(self, sink: Callable[[dict[str, Any]], None] | None) -> None:
        self._sink = sink
        self.error = ""
        #: Takes lines as text, several at once, where the receiver can (`harness.record.evidence.Evidence.write`).
        self.write_text = self._write_text if hasattr(getattr(sink, "__self__", None), "write_text") else None

    def _write_text(self, rows: str) -> None:
        if self._sink is None:
            return
        try:
            self._sink.__self__.write_text(rows)  # type: ignore[attr-defined]
        except OSError as error:
            self._sink, self.error = None, f"evidence is incomplete: {error}"

    def __call__(self, line: dict[str, Any]) -> None:
        if self._sink is None:
            return
        try:
            self._sink(line)
        except OSError as error:
            self._sink, self.error = None, f"evidence is incomplete: {error}"


class Running:
    """See :meth:`go`."""

    def __init__(
        self,
        world: World,
        task: Task,
        *,
        limit: float,
        sink: Callable[[dict[str, Any]], None] | None,
        settle: bool,
        native: bool,
        progress: Callable[[float, list[int]], None] | None,
    ) -> None:
        self._world, self._task, self._limit, self._native, self._progress = world, task, limit, native, progress
        self._sink = SafeSink(sink)
        spec = world.spec
        self._granting = spec.granting
        self._supervisor = Supervisor(world.size, task.epoch, spec, sink=self._sink, settle=settle)
        self._members = world.members
        self._outcomes = [RankOutcome(rank) for rank in range(world.size)]
        self._pending = set(range(world.size))
        self._patience = PROBE
        self._asked = time.monotonic()
        self._ask_at = self._asked + PROBE
        self._culprits: list[int] = []
        self._died: list[int] = []
        self._cause = ""
        self._closed: dict[int, float] = {}
        self._timed_out = False
        self._killed = False
        self._kill_at: float | None = None
        self._stop_at: float | None = None
        self._stop_error: RankFailedError | None = None

    def go(self) -> Run:
        """Run to the end; returns within the limit and two seconds, whatever ranks do."""
        started = time.monotonic()
        for member in self._members:
            member.fresh()
            member.channel.send(self._task)
        report = started + PROGRESS if self._progress else float("inf")
        limit_at = started + self._limit
        while self._pending:
            now = time.monotonic()
            times = (limit_at, self._kill_at, self._stop_at, report, *self._closed.values())
            wake = min(t - now for t in times if t is not None)
            self._serve(wake)
            self._look_for_ends()
            self._watch_proof()
            now = time.monotonic()
            if self._pending and now >= report and self._progress is not None:
                self._progress(now - started, sorted(self._pending))
                report = now + PROGRESS
            if self._pending and now >= limit_at:
                limit_at = float("inf")
                self._time_out()
            elif self._pending and self._stop_at is not None and now >= self._stop_at:
                self._stop()
            elif self._pending and self._kill_at is not None and now >= self._kill_at:
                self._kill()
        return self._conclude(time.monotonic() - started)

    def _serve(self, wake: float) -> None:
        """Wait at most ``wake`` seconds for messages, and take them; while more come at once, nothing else is looked
        at for some milliseconds."""
        until = time.monotonic() + BUSY
        while True:
            restless, unwritten = self._supervisor.restless, self._supervisor.unwritten
            if self._granting:
                silence = LOOK if restless or unwritten else 60.0
            else:
                silence = self._ask_at - time.monotonic()
            messages = self._world.loop.step(min(wake, silence))
            for member, message in messages:
                self._take(member, message)
            if unwritten > UNWRITTEN or not messages:
                self._supervisor.write()
            if not self._granting:
                self._probe(bool(messages))
            elif restless and not messages:
                self._send(self._supervisor.look())
            if not messages or not self._pending or time.monotonic() > until:
                return

    def _probe(self, busy: bool) -> None:
        """Ask ranks of a real engine for what they hold back, and look for a proof, once they have been quiet."""
        now = time.monotonic()
        if now >= self._ask_at:
            self._patience = min(2 * self._patience, PROBE_MOST)
            self._asked, self._ask_at = now, now + self._patience
            self._send(self._supervisor.look())
        elif busy:
            self._patience = PROBE
            self._ask_at = min(now + PROBE, self._asked + PROBE_MOST)

    # --- what happens ---------------------------------------------------------------------------------------

    def _take(self, member: Member, message: Any) -> None:
        if getattr(message, "epoch", None) != self._task.epoch:
            return
        released = self._supervisor.stopped  # before this message, which may prove that others wait in vain
        self._send(self._supervisor.handle(member.rank, message))
        if isinstance(message, Finished):
            failure = self._finish(member.rank, message)
            if failure is not None and not released:
                self._fail(member.rank, failure)

    def _send(self, out: list[tuple[int, Any]]) -> None:
        for rank, message in out:
            self._members[rank].channel.send(message)
        if self._supervisor.stopped and self._kill_at is None and self._stop_at is None:
            self._kill_at = time.monotonic() + AFTER_STOP

    def _finish(self, rank: int, message: Finished) -> Failure | None:
        """Keep what the rank's body returned; returns how it failed, if it did."""
        outcome = self._outcomes[rank]
        self._pending.discard(rank)
        try:
            content = pickle.loads(message.payload)
        except Exception as error:  # noqa: BLE001 - a class of the body's may do anything when it is rebuilt
            outcome.error = Failure("unreadable", f"what the rank returned cannot be unpickled here: {error!r}")
            return outcome.error
        if message.ok:
            outcome.ok, outcome.value = True, content
        else:
            outcome.error = content
        return outcome.error

    def _fail(self, rank: int, failure: Failure) -> None:
        """A rank failed of itself. The first ones to are the culprits; the others get a while to end."""
        if self._killed or self._timed_out:
            return
        self._culprits.append(rank)
        if self._stop_at is None and not self._supervisor.stopped:
            self._stop_at = time.monotonic() + AFTER_FAILURE
            self._stop_error = RankFailedError(f"rank {rank} failed: {failure.type}: {failure.message}")

    def _look_for_ends(self) -> None:
        for member in self._members:
            how = member.ended
            if how is not None and member.rank in self._pending:
                self._end(member, how)
            elif member.channel.closed and member.rank in self._pending:
                at = self._closed.setdefault(member.rank, time.monotonic() + AFTER_CLOSE)
                if time.monotonic() >= at:
                    member.host.kill([member.pid])
                    self._end(member, f"exit {LOST_CHANNEL}")
        for rank in self._closed.keys() - self._pending:
            del self._closed[rank]

    def _end(self, member: Member, how: str) -> None:
        """A rank's process ended with its task undone."""
        rank = member.rank
        self._pending.discard(rank)
        outcome = self._outcomes[rank]
        self._world.taint(f"rank {rank}: {how}")
        if self._killed:
            outcome.exit = "stopped"
            outcome.error = Failure("stopped", self._why_stopped())
            return
        outcome.exit = how
        outcome.error = Failure("died", f"{_ended_as(how)} before its task was done")
        if not self._supervisor.stopped and self._supervisor.certificate is None:
            self._died.append(rank)
        self._send(self._supervisor.rank_ended(rank, how))
        if self._pending and self._kill_at is None:
            self._kill_at = time.monotonic() + AFTER_FAILURE

    def _why_stopped(self) -> str:
        return "stopped by the harness" + (f": {self._cause}" if self._cause else "")

    # --- the clock ------------------------------------------------------------------------------------------

    def _watch_proof(self) -> None:
        """A real engine that is proved stuck is given a while; it may take its proof back meanwhile."""
        if self._granting or self._supervisor.stopped or self._killed or self._timed_out:
            return
        if self._supervisor.certificate is None:
            if not self._died:
                self._kill_at = None
        elif self._kill_at is None:
            self._kill_at = time.monotonic() + self._world.spec.patience

    def _time_out(self) -> None:
        """The limit is over: stacks first, then every call that waits raises, then the rest is killed."""
        self._timed_out = True
        late = sorted(self._pending)
        self._look(late)
        late = [rank for rank in late if rank in self._pending]
        self._culprits = [rank for rank in late if not self._waits(rank)] or late
        names = ", ".join(f"rank {rank} ({self._where(rank)})" for rank in self._culprits)
        others = ", ".join(f"rank {rank}" for rank in late if rank not in self._culprits)
        self._cause = f"stopped after {self._limit:g} s, unproven: {names} did not end" + (
            f"; waiting for others: {others}" if others else ""
        )
        self._stop_at = None
        self._kill_at = time.monotonic() + AFTER_STOP
        self._send(self._supervisor.interrupt(StoppedError(self._cause)))
        if not self._granting:
            self._kill()

    def _stop(self) -> None:
        """A rank failed a while ago and others still run: release them."""
        self._stop_at = None
        assert self._stop_error is not None
        self._kill_at = time.monotonic() + (AFTER_STOP if self._granting else 0.0)
        self._send(self._supervisor.interrupt(self._stop_error))

    def _kill(self) -> None:
        """Nothing else ends these: take their stacks, and kill the world."""
        stuck = sorted(self._pending)
        if not self._timed_out:
            self._look(stuck)
        if not self._pending:
            return
        if not self._cause and self._supervisor.certificate is None and self._culprits + self._died:
            first = (self._died or self._culprits)[0]
            self._cause = f"it was waiting when rank {first} failed"
        self._killed = True
        self._kill_at = None
        # What dying ranks still say (that a peer closed its connection) is of our making, and proves nothing.
        self._supervisor.interrupt(StoppedError(self._cause or "killed"))
        self._world.kill(sorted(self._pending))

    def _look(self, ranks: list[int]) -> None:
        members = [self._members[rank] for rank in ranks]
        found = take_stacks(self._world.loop, members, self._take, native=self._native)
        for rank, stack in found.items():
            self._outcomes[rank].stack = stack

    def _waits(self, rank: int) -> bool:
        """Whether, by the model, every thread of the rank waits for other ranks."""
        threads = self._supervisor.progress.threads[rank].values()
        return all(thread.blocked or thread.ended for thread in threads)

    def _where(self, rank: int) -> str:
        return self._outcomes[rank].stack.partition("\n")[0] or "no stack"

    # --- the end --------------------------------------------------------------------------------------------

    def _conclude(self, seconds: float) -> Run:
        self._world.loop.drain(self._members)
        self._supervisor.write()
        for outcome, member in zip(self._outcomes, self._members, strict=True):
            outcome.stdout, outcome.stderr = member.stdout.text(), member.stderr.text()
            if outcome.exit not in (None, "stopped") and outcome.error is not None:
                tail = member.stderr.last_words(8)
                message = outcome.error.message + (f"; its stderr ends with:\n{tail}" if tail else "")
                outcome.error = Failure(outcome.error.type, message)
        culprits = tuple(self._died or self._culprits)
        failed = any(not outcome.ok for outcome in self._outcomes)
        if self._supervisor.tainted or (failed and not self._granting):
            self._world.taint("a real engine may hold half of an operation")
        run = Run(
            self._outcomes,
            self._supervisor.certificate,
            seconds,
            self._timed_out,
            self._world.tainted is not None,
            culprits,
            self._describe(culprits),
            self._sink.error,
        )
        for outcome in self._outcomes:
            self._sink(_line(outcome, outcome.rank in culprits))
        self._sink(lines.end(seconds, self._timed_out, cause=run.cause, culprits=list(culprits), tainted=run.tainted))
        run.evidence_error = self._sink.error
        return run

    def _describe(self, culprits: tuple[int, ...]) -> str:
        if self._timed_out:
            return self._cause
        proof = self._supervisor.certificate
        if proof is not None and (proof.outcome != "missing" or not culprits):
            return proof.outcome
        return "; ".join(
            f"rank {rank}: {error.type}: {error.message}"
            for rank in culprits
            if (error := self._outcomes[rank].error) is not None
        )


def _ended_as(how: str) -> str:
    """How a process ended, as a predicate."""
    if how == f"exit {LOST_CHANNEL}":
        return "closed its control channel"
    if how.startswith("signal"):
        return f"was killed by {processes.signal_name(how)}"
    return f"ended with {how}" if how.startswith("exit") else how


def _line(outcome: RankOutcome, culprit: bool) -> dict[str, Any]:
    error = outcome.error.to_json() if outcome.error else None
    more: dict[str, Any] = {"exit": outcome.exit, "culprit": culprit}
    for name, text in (("stderr", outcome.stderr), ("stdout", outcome.stdout), ("stack", outcome.stack)):
        if text:
            more[name] = text[-4000:]
    return lines.rank_outcome(outcome.rank, outcome.ok, error, **more)
