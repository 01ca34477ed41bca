"""The handles that recorded operations return: torch's ``Work``, waiting for the grant first and the transport then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work

from harness.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.record.recorder import Recorder
from harness.record.ticket import Ticket

#: How often a wait for gloo looks whether the epoch was stopped. Only an operation that one rank's gloo refused and
#: the others' began ever waits so long.
_PATIENCE = timedelta(seconds=0.5)
_NO_TIMEOUT = timedelta(0)


class RecordedWork(Work):
    """The handle of one operation, or of several that were coalesced.

    ``result`` is what `result()` gives. ``p2p`` works are
    those of point to point, whose transport handle must be waited for and has no future.
    """

    def __init__(
        self,
        recorder: Recorder,
        tickets: Sequence[Ticket],
        result: Sequence[torch.Tensor] = (),
        *,
        p2p: bool = False,
    ) -> None:
        super().__init__()
        self._recorder = recorder
        self.tickets = tickets
        self._result = list(result)
        self.p2p = p2p
        self._done = False
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    # --- waiting --------------------------------------------------------------------------------------------

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Block until the operation is done. Raises what it failed with, or the error that stopped the epoch."""
        if self._done:
            return True
        seconds = timeout.total_seconds() if timeout else -1.0
        if not self._recorder.granting:
            for ticket in self.tickets:
                ticket.granted = ticket.work is None or ticket.work.is_completed()
        if not self._recorder.wait(self.tickets, seconds):
            raise RuntimeError(f"wait timed out after {seconds} s: not all ranks have begun this operation")
        self._settle()
        return True

    def synchronize(self) -> None:
        """As `wait`: there is no stream."""
        self.wait()

    def settle_unrecorded(self) -> None:
        """Wait where the supervisor knows of it without being told (``host_blocking``)."""
        self._recorder.pass_gates(self.tickets)
        self._settle()

    def _settle(self) -> None:
        """Wait for the transport; all are granted."""
        for ticket in self.tickets:
            if ticket.sent and not ticket.granted:
                continue  # a buffered send: nothing has moved, and the host need not care
            if ticket.error is not None:
                raise ticket.error
            if self.p2p:
                await_transfer(ticket)
            elif ticket.work is not None:
                await_transport(self._recorder, ticket.work)
            self._recorder.complete(ticket.seq)
        self._done = True

    # --- asking ---------------------------------------------------------------------------------------------

    def is_completed(self) -> bool:
        """Whether the operation is done. Raises the error that stopped the epoch, so that polling loops end."""
        if self._done:
            return True
        self._recorder.flush()
        self._recorder.check_tickets(self.tickets)
        if any(ticket.work is None and not ticket.granted and not ticket.sent for ticket in self.tickets):
            return False
        if self.p2p and self._recorder.granting:
            self._settle()  # both sides are there, and gloo knows of completion only by waiting
            return True
        return all(ticket.work is None or ticket.work.is_completed() for ticket in self.tickets)

    def is_success(self) -> bool:
        """Whether it is done without error."""
        return self._done or (self.exception() is None and self.is_completed())

    def exception(self) -> BaseException | None:
        """What it failed with, if it did."""
        for ticket in self.tickets:
            if ticket.error is not None:
                return ticket.error
            if ticket.work is not None and not self.p2p:
                future = ticket.work.get_future()  # the handle's own `exception` is deprecated, and warns
                found = _error_of(future) if future.done() else None
                if found is not None:
                    return found
        return None

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._result

    def source_rank(self) -> int:
        """The group rank a receive came from."""
        return int(self.tickets[0].work._source_rank())

    _source_rank = source_rank

    # --- futures --------------------------------------------------------------------------------------------

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the output tensors; its `wait` counts as this handle's."""
        if self.p2p:
            raise UnsupportedError("gloo has no futures for point-to-point calls: use wait() on the handle")
        if self._future is None:
            self._recorder.flush()
            self._future = _Future(self)
        return self._future

    def chain(self, done: Callable[[BaseException | None], None]) -> None:
        """Call ``done`` once the operation is done, with its error if it failed; maybe in another thread."""
        ticket = self.tickets[-1]

        def started() -> None:
            if ticket.error is not None:
                done(ticket.error)
            elif ticket.work is None:
                done(_stop_of(self._recorder))
            else:
                ticket.work.get_future().add_done_callback(lambda future: done(_error_of(future)))

        if ticket.granted or ticket.work is not None:
            started()
        else:
            ticket.then.append(started)


class _Future(torch.futures.Future):
    """The future of a recorded operation. Python callers that wait for it are seen waiting for the operation."""

    def __init__(self, work: RecordedWork) -> None:
        super().__init__()
        self._work = work
        work.chain(self._finish)

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            self.set_result(self._work.result())
        else:
            self.set_exception(error)

    def wait(self) -> list[torch.Tensor]:
        self._work.wait()
        result: list[torch.Tensor] = super().wait()
        return result


def _error_of(future: Any) -> BaseException | None:
    try:
        future.value()
    except Exception as error:  # noqa: BLE001 - whatever the transport failed with goes on to whoever waits
        return error
    return None


def _stop_of(recorder: Recorder) -> BaseException | None:
    try:
        recorder.check()
    except Exception as error:  # noqa: BLE001 - it goes on to whoever waits for the future
        return error
    return None


def await_transport(recorder: Recorder, work: Any) -> None:
    """Wait for a collective that is at the transport."""
    if not recorder.granting:
        work.wait()
        return
    while True:
        try:
            work.wait(_PATIENCE)
            return
        except RuntimeError:
            if work.is_completed():
                raise
            recorder.check()


def await_transfer(ticket: Ticket) -> None:
    """Wait for a point-to-point transfer, whoever does so first: gloo would wait for a second one otherwise."""
    with ticket.turn:
        if not ticket.waited and ticket.work is not None:
            ticket.work.wait()
            ticket.waited = True


def finished(work: Work | None) -> Work | None:
    """The handle, waited for: what a call that blocks hands on."""
    if work is not None:
        work.wait()
    return work


def coalesced(recorder: Recorder, works: Sequence[RecordedWork]) -> RecordedWork:
    """One handle for several operations."""
    tickets = [ticket for work in works for ticket in work.tickets]
    results = [tensor for work in works for tensor in work.result()]
    return RecordedWork(recorder, tickets, results, p2p=any(work.p2p for work in works))
