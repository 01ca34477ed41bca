"""Several threads of a rank on one engine: it gets operations in the recorded order, and nobody waits without need."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from harness.backends.engine import InTurn, Order


class Slow:
    """A communicator whose calls block until they are let go, and are written down as they begin."""

    rank, size, no_p2p = 0, 2, ""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.free = {name: threading.Event() for name in ("first", "second", "message")}
        self.inside = {name: threading.Event() for name in self.free}

    def _call(self, name: str) -> None:
        self.begun.append(name)
        self.inside[name].set()
        assert self.free[name].wait(10)

    def all_reduce(self, name: str, op: str) -> None:
        self._call(name)

    def send(self, name: str, to: int, tag: int) -> None:
        self._call(name)


def test_the_engine_gets_operations_in_the_order_of_the_record() -> None:
    engine, order = Slow(), Order()
    comm: Any = InTurn(engine, order)
    recorded: list[str] = []
    noted = {name: threading.Event() for name in engine.free}

    def issue(name: str, call: str, *args: Any) -> threading.Thread:
        def body() -> None:
            with order:
                recorded.append(name)
                noted[name].set()
                getattr(comm, call)(name, *args)

        thread = threading.Thread(target=body)
        thread.start()
        assert noted[name].wait(10), "recording waits for nobody's call"
        return thread

    threads = [issue("first", "all_reduce", "SUM")]
    assert engine.inside["first"].wait(10)
    threads.append(issue("second", "all_reduce", "SUM"))
    threads.append(issue("message", "send", 1, 0))
    assert engine.inside["message"].wait(10), "a message is no collective"
    assert engine.begun == ["first", "message"]
    for name in ("message", "first", "second"):
        engine.free[name].set()
    for thread in threads:
        thread.join(10)
    assert recorded == ["first", "second", "message"]
    assert engine.begun == ["first", "message", "second"]


def test_what_fails_lets_the_next_one_in() -> None:
    class Failing(Slow):
        def all_reduce(self, name: str, op: str) -> None:
            raise RuntimeError(name)

    order = Order()
    comm: Any = InTurn(Failing(), order)
    for name in ("first", "second"):
        with pytest.raises(RuntimeError, match=name), order:
            comm.all_reduce(name, "SUM")
    with order:
        pass
