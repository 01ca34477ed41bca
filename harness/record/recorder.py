"""The rank's side of the record: numbers operations, reports them, and holds them until they may run.

One `Recorder` serves one rank process, over all tasks (epochs), threads and groups. Backends call `issue`, `wait`
and `complete`; the channel's listener thread calls `on_message`. An operation of a granting backend is a `Ticket`
whose ``start`` is called by the listener as soon as the supervisor grants it, so that a rank that is busy elsewhere
delays nobody, and so that every rank hands operations to the transport in the same order.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.backends.spec import BackendSpec
from harness.errors import HarnessError
from harness.model.operation import Operation
from harness.record.stack import Stacks
from harness.record.threads import ThreadNames, may_issue, native_id
from harness.record.ticket import Ticket
from harness.world.messages import Events, Grant, Probe, Release, Sent, Stop

#: A backend without grants holds events back while they come thick: for so many nanoseconds, and so many of them. An
#: operation or a stack that is new is never held, and the supervisor asks for what is held once nothing comes.
HOLD_NS, HOLD = 20_000_000, 1024
#: How often a blocked thread looks for other threads that began or ended, in seconds.
LOOK_AROUND = 0.02


class _Local(threading.local):
    """What a thread has set for the operations that it issues; defaults in the class, so that reading is quick."""

    label = ""
    unrecorded = False
    name = (-1, "")  # the thread's, as of the recorder's `_naming`


class Recorder:
    """See the module. ``send`` hands a message to the supervisor; it may block but must not reorder."""

    def __init__(self, send: Callable[[Any], None], rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.epoch = 0
        self.spec: BackendSpec | None = None
        self.active = False
        self.granting = False  # whether operations of the running task wait for a grant
        self._send = send
        self._lock = threading.RLock()
        self._own: set[int] = set()
        self._at_begin: list[Callable[[], None]] = []
        self._early: Stop | None = None  # of a task that has not begun here yet
        self._local = _Local()
        self._naming = 0  # counts up when names that threads had are no longer valid
        self._clear()

    def _clear(self) -> None:
        self._records: list[tuple[Any, ...]] = []
        self._op_ids: dict[Operation, int] = {}
        self._stacks = Stacks()
        self._names = ThreadNames()
        self._naming += 1
        self._announced: set[str] = {"main"}
        self._seq = 0
        self._sent_ns = 0
        # Send at once: a grant waits for it, or an operation or a stack is there for the first time.
        self._urgent = True
        self._tickets: dict[int, Ticket] = {}
        self._releases: dict[str, threading.Semaphore] = {}
        self._stop: bytes | None = None

    # --- tasks ----------------------------------------------------------------------------------------------

    def at_begin(self, call: Callable[[], None]) -> None:
        """``call()`` runs at the beginning of every epoch, before its body (a backend puts its groups in order)."""
        self._at_begin.append(call)

    def own_thread(self) -> None:
        """The calling thread is the harness's own: it never issues anything."""
        self._own.add(get_ident())

    def begin(self, epoch: int, spec: BackendSpec) -> None:
        """A task begins: numbers start anew, and what comes of earlier epochs is dropped."""
        with self._lock:
            self.active = False
            self._clear()
            self.epoch, self.spec, self.granting = epoch, spec, spec.granting
            if self._early is not None and self._early.epoch == epoch:
                self._stop = self._early.error
        self.arrange()
        self.active = True

    def arrange(self) -> None:
        """Have the backend put its groups in order: the default one is there again, if it is not."""
        for call in self._at_begin:
            call()

    def end(self) -> None:
        """The body is over: send what is held back. Grants of this epoch are still carried out."""
        self.flush()
        self.active = False

    @property
    def recording(self) -> bool:
        """Whether what the calling thread does now is recorded."""
        return self.active and not self._local.unrecorded

    @property
    def alone(self) -> bool:
        """Whether the rank has no thread but the calling one and the harness's own."""
        return threading.active_count() <= 1 + len(self._own)

    # --- events of the body ---------------------------------------------------------------------------------

    def operation(self, op: Operation) -> int:
        """A number for the operation, valid in this epoch."""
        with self._lock:
            number = self._op_ids.get(op)
            if number is None:
                number = self._op_ids[op] = len(self._op_ids)
                self._records.append(("o", number, op))
                self._urgent = True
            return number

    def issue(self, ops: Sequence[int], tickets: Sequence[Ticket], *, hold: bool = False, depth: int = 2) -> None:
        """The calling thread issues operations (several: a batch), by their numbers from `operation`.

        With ``hold`` the event may travel with the next one (the call waits right away). ``depth`` innermost
        frames are left out of the stack. Raises the epoch's error once it was stopped.
        """
        ns = time.monotonic_ns()
        with self._lock:
            self.check()
            where = self._where(depth + 1)
            thread = self._thread()
            first = self._seq
            self._seq = first + len(ops)
            for offset, ticket in enumerate(tickets):
                ticket.seq, ticket.where = first + offset, where
                if ticket.start is not None:
                    self._tickets[ticket.seq] = ticket
            self._records.append(("i", first, thread, tuple(ops), where, ns))
            if not hold:
                self._send_soon(ns)

    def call(self, op: int, ticket: Ticket | None = None, *, depth: int = 2) -> int:
        """The calling thread issues an operation and waits for it at once; returns its sequence number.

        One event instead of two, and no handle. With a ticket, it is granted on return. Without, the caller hands
        the operation to its engine, and waits there. Raises as `issue` and `wait` do.
        """
        ns = time.monotonic_ns()
        with self._lock:
            if self._stop is not None:
                raise self._error()
            seq = self._seq
            self._seq = seq + 1
            if ticket is not None:
                ticket.seq = seq
                self._tickets[seq] = ticket
            where, thread = self._where(depth + 1), self._thread()
            self._records.append(("s", seq, thread, op, where, self._others(), ns))
            self._send_soon(ns)
        if ticket is not None:
            self._pass(ticket, None)
            self.check_tickets((ticket,))
        return seq

    def _send_soon(self, ns: int) -> None:
        """Send now, unless nobody waits for these events and more come at once."""
        if self._urgent or ns - self._sent_ns > HOLD_NS or len(self._records) >= HOLD:
            self._send_records()

    def wait(self, tickets: Sequence[Ticket], timeout: float = -1, *, at_issue: bool = False, depth: int = 2) -> bool:
        """Block the calling thread until all are granted; False if ``timeout`` seconds passed before.

        ``at_issue`` says that the issuing call itself waits, so that its stack stands for this one's too. Raises
        the epoch's error if it is stopped meanwhile. For a backend without grants the event is recorded and sent,
        and the caller then waits for its engine.
        """
        self._report_wait(tickets, 0 if at_issue else depth + 1)
        if not self.granting:
            return True
        return self.pass_gates(tickets, timeout)

    def pass_gates(self, tickets: Sequence[Ticket], timeout: float = -1) -> bool:
        """As `wait`, for a wait that the supervisor knows of without being told (``host_blocking``)."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        for ticket in tickets:
            if not self._pass(ticket, deadline):
                return False
        self.check_tickets(tickets)
        return True

    def _report_wait(self, tickets: Sequence[Ticket], depth: int) -> None:
        ns = time.monotonic_ns()
        with self._lock:
            if not self.recording:
                return
            self.check_tickets(tickets)
            others = self._others()
            where = self._where(depth + 1) if depth else tickets[0].where
            record = ("w", self._thread(), tuple([t.seq for t in tickets]), where, others, ns)
            self._records.append(record)
            if not all(t.granted for t in tickets):
                self._send_soon(ns)

    def _pass(self, ticket: Ticket, deadline: float | None) -> bool:
        """Wait at one ticket's gate, with a look at the other threads now and then where there are any."""
        while True:
            rest = -1.0 if deadline is None else max(deadline - time.monotonic(), 0)
            look = -1.0 if self.alone else LOOK_AROUND
            step = min((t for t in (rest, look) if t >= 0), default=-1.0)
            if ticket.pass_gate(step):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._look_around()

    def complete(self, seq: int) -> None:
        """The transport is done with the operation on this rank; travels with the next event."""
        if self.recording:
            with self._lock:
                self._records.append(("c", seq, time.monotonic_ns()))

    def note(self, name: str, value: Any) -> None:
        """Keep ``value`` (JSON-able) in the evidence."""
        with self._lock:
            self._records.append(("n", name, value, time.monotonic_ns()))

    def tell(self, to: int) -> None:
        """This rank told rank ``to`` something outside every group; never blocks."""
        with self._lock:
            self.check()
            self._records.append(("t", self._thread(), to, time.monotonic_ns()))
            self._send_records()

    def hear(self, source: int, depth: int = 1) -> None:
        """Block the calling thread until the next message that rank ``source`` told this one."""
        with self._lock:
            self.check()
            thread = self._thread()
            self._records.append(("h", thread, source, self._where(depth + 1), time.monotonic_ns()))
            self._send_records()
        self.await_release(thread)

    def announce(self, threads: Sequence[str]) -> None:
        """Threads of these names are about to begin: until they end, they may issue whatever others wait for."""
        with self._lock:
            ns = time.monotonic_ns()
            self._announced.update(threads)
            self._records += [("b", name, ns) for name in threads]
            self._send_records()

    def end_thread(self) -> None:
        """The calling thread issues nothing more in this task, though it may live on (to join the others, say)."""
        with self._lock:
            self._records.append(("e", self._thread(), time.monotonic_ns()))
            self._send_records()

    def await_release(self, thread: str | None = None) -> None:
        """Block until the supervisor releases the thread (a first use of a group, a host message)."""
        with self._lock:
            gate = self._gate(thread or self._thread())
        while not gate.acquire(timeout=None if self.alone else LOOK_AROUND):
            self._look_around()
        self.check()

    def flush(self) -> None:
        """Send what is held back."""
        with self._lock:
            self._send_records()

    # --- stops ----------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the running task was stopped."""
        return self._stop is not None

    def check(self) -> None:
        """Raise the epoch's error if it was stopped."""
        if self._stop is not None:
            raise self._error()

    def check_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Raise what a ticket failed with, or the epoch's error if one will never be granted."""
        for ticket in tickets:
            if ticket.error is not None:
                raise ticket.error
        if self._stop is not None and any(ticket.start is not None for ticket in tickets):
            raise self._error()

    def _error(self) -> HarnessError:
        """A copy of its own for each thread and call: tracebacks are kept in the exception object."""
        assert self._stop is not None
        error: HarnessError = pickle.loads(self._stop)
        return error

    # --- the listener's side --------------------------------------------------------------------------------

    def on_message(self, message: Grant | Sent | Release | Probe | Stop) -> None:
        """Carry out what the supervisor says; called by the channel's listener thread, which is the harness's own."""
        self._own.add(get_ident())
        with self._lock:
            if message.epoch != self.epoch:
                if isinstance(message, Stop) and message.epoch > self.epoch:
                    self._early = message
                return
        match message:
            case Grant(_, seqs):
                for seq in seqs:
                    ticket = self._tickets.pop(seq, None)
                    if ticket is not None:
                        ticket.run()
            case Sent(_, seqs):
                for seq in seqs:
                    ticket = self._tickets.get(seq)
                    if ticket is not None:
                        ticket.sent = True
                        with contextlib.suppress(RuntimeError):
                            ticket._gate.release()
            case Release(_, thread):
                with self._lock:
                    self._gate(thread).release()
            case Probe():
                self.flush()
            case Stop(_, error):
                self._halt(error)

    def _halt(self, error: bytes) -> None:
        with self._lock:
            self._stop = error
            waiting = list(self._tickets.values())
            gates = list(self._releases.values())
            self._tickets.clear()
        for ticket in waiting:
            ticket.open()
        for gate in gates:
            gate.release()

    # --- details --------------------------------------------------------------------------------------------

    def _gate(self, thread: str) -> threading.Semaphore:
        gate = self._releases.get(thread)
        if gate is None:
            gate = self._releases[thread] = threading.Semaphore(0)
            if self._stop is not None:
                gate.release()
        return gate

    def _send_records(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._urgent, self._sent_ns = self.granting, time.monotonic_ns()
            self._send(Events(self.epoch, tuple(records)))

    def _where(self, depth: int) -> int:
        number, frames = self._stacks.here(depth + 1)
        if frames is not None:
            self._records.append(("f", number, frames))
            self._urgent = True
        return number

    def _thread(self) -> str:
        naming, name = self._local.name
        if naming != self._naming:
            name = self._names.of(threading.get_native_id())
            self._local.name = self._naming, name
            self._announced.add(name)
        return name

    def _others(self) -> tuple[str, ...]:
        """Names of live threads that have not been heard of yet."""
        if self.alone:
            return ()
        me = get_ident()
        names = []
        for thread in may_issue(frozenset(self._own | {me})):
            name = self._names.of(native_id(thread), thread.name)
            if name not in self._announced:
                self._announced.add(name)
                names.append(name)
        return tuple(names)

    def _look_around(self) -> None:
        """Report threads that began or ended since a thread of this rank became blocked."""
        with self._lock:
            if self._stop is not None or not self.active:
                return
            began = self._others()
            ns = time.monotonic_ns()
            self._records += [("b", name, ns) for name in began]
            gone = self._names.ended(map(native_id, may_issue(frozenset(self._own))))
            self._naming += bool(gone)  # one that was only parked, and works again, counts as a new thread
            self._records += [("e", name, ns) for name in gone if name in self._announced]
            self._send_records()

    @property
    def label(self) -> str:
        """The label that operations of the calling thread get now; empty for the default."""
        return self._local.label

    @contextlib.contextmanager
    def labelled(self, text: str) -> Iterator[None]:
        """Operations that the thread issues inside carry ``text`` as the logical identity of their data."""
        before = self.label
        self._local.label = text
        try:
            yield
        finally:
            self._local.label = before

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """The thread's operations inside go straight to the transport, unseen: set-up that is the same on all ranks."""
        before = self._local.unrecorded
        self._local.unrecorded = True
        try:
            yield
        finally:
            self._local.unrecorded = before
