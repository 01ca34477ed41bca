"""Point-to-point calls that are handed over together (``batch_isend_irecv``, a coalescing manager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.backends.work import RecordedWork
from harness.record.ticket import Ticket


class Batch:
    """The calls so far. It is ``full`` once ``size`` of them are there; without a size its owner closes it."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.numbers: list[int] = []
        self.tickets: list[Ticket] = []
        self.calls: list[tuple[RecordedWork, Callable[[], Any]]] = []

    def add(self, number: int, ticket: Ticket, work: RecordedWork, start: Callable[[], Any]) -> None:
        """One more call: its operation's number, its ticket, its handle, and how it goes to the transport."""
        self.numbers.append(number)
        self.tickets.append(ticket)
        self.calls.append((work, start))

    @property
    def full(self) -> bool:
        """Whether all announced calls are there."""
        return len(self.calls) == self.size
