"""A real engine in the place of gloo: its communicators are the transport, everything else stays as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from harness.backends.buffers import BufferGroup, Communicator
from harness.backends.process import Process
from harness.backends.spec import BackendSpec
from harness.model.operation import POINT_TO_POINT, Operation
from harness.record.ticket import Ticket

if TYPE_CHECKING:
    from harness.record.recorder import Recorder

#: ``connect(ranks, index, store)`` makes the communicator of this rank over those world ranks, the ``index``-th over
#: these; the store is the members' own.
Connect = Callable[[tuple[int, ...], int, dist.Store], Communicator]


class Order:
    """``with order:`` a thread records an operation and hands it to the engine, before any other thread does.

    An engine matches operations by the order of the calls, and with several threads MPI leaves that order to the caller
    (MPI 4.1, MPI and Threads, Clarifications): what comes first in the record comes first in the engine.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = threading.local()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._inside.now = True

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Let others in, if the calling thread is inside: it has its place in the engine's order, and may block."""
        if getattr(self._inside, "now", False):
            self._inside.now = False
            self._lock.release()


class InTurn:
    """A communicator whose calls block: several threads' calls that match by order are made one after the other."""

    def __init__(self, comm: Communicator, order: Order) -> None:
        self.rank, self.size, self.no_p2p = comm.rank, comm.size, comm.no_p2p
        self._comm, self._order = comm, order
        self._lock = threading.Lock()
        self._last: dict[tuple[Any, ...], threading.Event] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._comm, name)

        def in_turn(*args: Any) -> Any:
            # All collectives match by one order; sends and receives by that of their peer and tag.
            stream = (name, *args[1:]) if name in POINT_TO_POINT else ()
            done = threading.Event()
            with self._lock:
                before = self._last.get(stream)
                self._last[stream] = done
            self._order.leave()
            if before is not None:
                before.wait()
            try:
                return call(*args)
            finally:
                done.set()

        return in_turn


class EngineProcess(Process):
    """One rank's groups over an engine that `connect` reaches."""

    meets = True

    def __init__(
        self, spec: BackendSpec, rank: int, world: int, store: dist.Store, recorder: Recorder, connect: Connect
    ) -> None:
        self._engine = connect
        self.order: Order = Order()
        super().__init__(spec, rank, world, store, recorder)

    def _connect(self, ranks: tuple[int, ...], index: int) -> BufferGroup:
        store = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
        comm = self._engine(ranks, index, store)
        return BufferGroup(InTurn(comm, self.order) if self.model.blocks_at_issue else comm)

    def _meet(self, op: Operation, inner: Any) -> None:
        """A barrier of the engine's, on ``inner``: in a queue, it has its place among the other operations."""
        if inner is None:
            super()._meet(op, inner)  # making the communicator is what they meet in
            return
        recorder = self.recorder
        ticket = Ticket(None)
        with self.order:
            recorder.issue((recorder.operation(op),), (ticket,), depth=4)
            if self.model.blocks_at_issue:
                recorder.flush()  # the engine may never return from the call
            ticket.work = inner.barrier(None)
        recorder.wait((ticket,), at_issue=True)
        ticket.work.wait()
        recorder.complete(ticket.seq)
