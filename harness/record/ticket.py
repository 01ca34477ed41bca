"""One issued operation on its way from its issue, over the supervisor's grant, to the transport."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any


class Ticket:
    """One issued operation: from its issue, over the grant, to being handed to the transport.

    ``start`` hands it to the transport; what it returns is ``work``, what it raises is ``error``.
    """

    __slots__ = ("_gate", "error", "granted", "sent", "seq", "start", "then", "turn", "waited", "where", "work")

    def __init__(self, start: Callable[[], Any] | None) -> None:
        self.seq = -1
        self.where = 0
        self.start = start
        self.then: list[Callable[[], None]] = []  # called in the listener once it has started or will never do so
        self.work: Any = None
        self.error: BaseException | None = None
        self.waited = False  # a point-to-point transfer of gloo's must be waited for exactly once
        self.turn = allocate_lock()  # held by the thread that waits for the transport
        self.granted = False
        self.sent = False  # a buffered send whose host may go on though nothing has moved
        self._gate = allocate_lock()
        self._gate.acquire()

    def open(self) -> None:
        """Let those who wait here go on."""
        self.granted = True
        # Whoever waits opens the gate again for the next one; opening it twice here would be an error.
        with contextlib.suppress(RuntimeError):
            self._gate.release()
        for call in self.then:
            call()

    def run(self) -> None:
        """Hand the operation to the transport."""
        start, self.start = self.start, None
        if start is not None:
            try:
                self.work = start()
            except Exception as error:  # noqa: BLE001 - it belongs to the thread that waits, not to the listener
                self.error = error
        self.open()

    def pass_gate(self, timeout: float) -> bool:
        """Wait until the gate is open; whether it is. A negative timeout waits for ever."""
        if self.granted or self.sent:
            return True
        if not self._gate.acquire(timeout=timeout):
            return False
        with contextlib.suppress(RuntimeError):
            self._gate.release()
        return True
