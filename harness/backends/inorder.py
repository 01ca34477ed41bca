"""One in-order queue of a process over all its communicators: a thread that makes blocking calls one after the other.

The host goes on at once, and an operation starts when every earlier one of its rank is done, whatever communicator
it is on. So XCCL behaved in the bug this began with; here it is the real engine that waits, not a model of it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from harness.backends.buffers import Communicator
from harness.record import current

_Call = Callable[[], Any]


class Queued:
    """A call in the queue, as a request."""

    def __init__(self, call: _Call) -> None:
        self._call: _Call | None = call
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call; in the queue's thread."""
        call, self._call = self._call, None
        assert call is not None
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            self._error = error
        self._done.set()

    def wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error

    def test(self) -> bool:
        if self._done.is_set():
            self.wait()
        return self._done.is_set()


class InOrderQueue:
    """The queue of one process; its thread starts with it and ends with the process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Queued] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="harness-queue", daemon=True).start()

    def _work(self) -> None:
        current().own_thread()
        while True:
            self._calls.get().run()

    def put(self, call: _Call) -> Queued:
        """Hand over a blocking call."""
        queued = Queued(call)
        self._calls.put(queued)
        return queued

    def wrap(self, comm: Communicator) -> Communicator:
        """The communicator, with every operation through this queue; ``comm`` must block in its calls."""
        return _Wrapped(self, comm)


class _Wrapped:
    """Every method of a communicator, queued."""

    def __init__(self, inorder: InOrderQueue, comm: Communicator) -> None:
        self._queue, self._comm = inorder, comm
        self.rank, self.size, self.no_p2p = comm.rank, comm.size, comm.no_p2p

    def __getattr__(self, name: str) -> Callable[..., Queued]:
        call = getattr(self._comm, name)
        return lambda *args: self._queue.put(lambda: call(*args))
