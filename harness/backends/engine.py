"""A real engine in the place of gloo: its communicators are the transport, everything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch.distributed as dist

from harness.backends.buffers import BufferGroup, Communicator
from harness.backends.process import Process
from harness.backends.spec import BackendSpec

if TYPE_CHECKING:
    from harness.record.recorder import Recorder

#: ``connect(ranks, index, store)`` makes the communicator of this rank over those world ranks, the ``index``-th over
#: these; the store is the members' own.
Connect = Callable[[tuple[int, ...], int, dist.Store], Communicator]


class EngineProcess(Process):
    """One rank's groups over an engine that `connect` reaches."""

    def __init__(
        self, spec: BackendSpec, rank: int, world: int, store: dist.Store, recorder: Recorder, connect: Connect
    ) -> None:
        self._engine = connect
        super().__init__(spec, rank, world, store, recorder)

    def _connect(self, ranks: tuple[int, ...], index: int) -> BufferGroup:
        store = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
        return BufferGroup(self._engine(ranks, index, store))
