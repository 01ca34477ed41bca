"""A real engine in the place of gloo: its communicators are the transport, everything else stays as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from harness.backends.buffers import BufferGroup, Communicator
from harness.backends.process import Process
from harness.backends.spec import BackendSpec
from harness.model.operation import Operation
from harness.model.progress import Model
from harness.record.ticket import Ticket

if TYPE_CHECKING:
    from harness.record.recorder import Recorder

#: ``connect(ranks, index, store)`` makes the communicator of this rank over those world ranks, the ``index``-th over
#: these; the store is the members' own.
Connect = Callable[[tuple[int, ...], int, dist.Store], Communicator]


class EngineProcess(Process):
    """One rank's groups over an engine that `connect` reaches."""

    meets = True

    def __init__(
        self, spec: BackendSpec, rank: int, world: int, store: dist.Store, recorder: Recorder, connect: Connect
    ) -> None:
        self._engine = connect
        if Model.parse(spec.model).width is not None:
            self.order = threading.RLock()
        super().__init__(spec, rank, world, store, recorder)

    def _connect(self, ranks: tuple[int, ...], index: int) -> BufferGroup:
        store = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
        return BufferGroup(self._engine(ranks, index, store))

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
