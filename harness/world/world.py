"""A world: ranks that stand ready, and run one task after another.

with World(4, backend="lane") as world:
    run = world.run(body, argument)
    print(run.values)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from harness import backends
from harness.errors import UsageError, WorldError
from harness.world.launch import Launcher, Local, Ranks
from harness.world.loop import Loop
from harness.world.member import Member
from harness.world.messages import Started, Task
from harness.world.outcome import Run
from harness.world.running import Running
from harness.world.tasks import pack

#: How long ranks may take to stand ready, and killed ones to be gone; in seconds.
START_LIMIT = 60.0
END_LIMIT = 1.5


class World:
    """``size`` ranks of one backend. Raises UsageError for an unknown backend, WorldError if the ranks do not start.

    One run at a time. ``tainted`` is None, or why no other run is possible.
    """

    def __init__(self, size: int, backend: str = "gloo", *, launcher: Launcher | None = None) -> None:
        if size < 1:
            raise UsageError(f"a world of {size} ranks: at least 1 is needed")
        self.size, self.backend = size, backend
        self.spec = backends.get(backend).spec
        self.tainted: str | None = None
        self._epoch = 0
        self._owner = os.getpid()
        self._ranks: Ranks | None = (launcher or Local()).start(size, backend)
        self.members: list[Member] = self._ranks.members
        self.loop = Loop()
        for host in {id(member.host): member.host for member in self.members}.values():
            self.loop.add_host(host)
        for member in self.members:
            self.loop.add(member)
        try:
            self._await_start()
        except BaseException:
            self.close()
            raise

    def _await_start(self) -> None:
        """Until every rank says that it is part of the world."""
        waiting = set(range(self.size))
        deadline = time.monotonic() + START_LIMIT
        while waiting:
            for member, message in self.loop.step(deadline - time.monotonic()):
                if isinstance(message, Started):
                    if message.error:
                        raise WorldError(f"rank {member.rank} could not start:\n{message.error}")
                    waiting.discard(member.rank)
            for member in self.members:
                if member.ended is not None:
                    self.loop.drain([member])
                    tail = member.stderr.last_words(20)
                    raise WorldError(f"rank {member.rank} ended at its start: {member.ended}\n{tail}")
            if time.monotonic() > deadline:
                raise WorldError(f"ranks {sorted(waiting)} did not start within {START_LIMIT:.0f} s")

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        limit: float = 60.0,
        sink: Callable[[dict[str, Any]], None] | None = None,
        settle: bool = False,
        native: bool = False,
        progress: Callable[[float, list[int]], None] | None = None,
    ) -> Run:
        """Run ``function(*args)`` on every rank, and return what became of it, whatever that is.

        After ``limit`` seconds the run is stopped, unproven, with the stacks of all ranks that had not ended; with
        ``native`` these show C and C++ frames too, where py-spy may read them. ``sink`` gets every line of evidence.
        ``settle`` judges only once nothing can move. ``progress(seconds, waiting ranks)`` is called every second.
        Any exception in here (KeyboardInterrupt) first ends the world. Raises WorldError if the world is tainted,
        UsageError if the task can't be pickled.
        """
        if self.tainted is not None:
            raise WorldError(f"this world cannot serve another run: {self.tainted}")
        self._epoch += 1
        task = Task(self._epoch, pack(function, args), {"path": [os.path.abspath(entry) for entry in sys.path]})
        try:
            run = Running(
                self, task, limit=limit, sink=sink, settle=settle, native=native, progress=progress
            ).go()  # fmt: skip
        except BaseException:
            self.close()
            raise
        if run.tainted:
            self.close()
        return run

    def taint(self, reason: str) -> None:
        """Say why the world cannot serve another run; the first reason stays."""
        self.tainted = self.tainted or reason

    def kill(self, ranks: list[int]) -> None:
        """End these ranks' processes and what they started. The world is tainted."""
        self.taint("its ranks were killed")
        for host in {id(member.host): member.host for member in self.members}.values():
            host.kill([self.members[rank].pid for rank in ranks if self.members[rank].host is host])

    def close(self) -> None:
        """End all ranks and remove what they left; returns within two seconds, and may be called again."""
        if self._ranks is None:
            return
        ranks, self._ranks = self._ranks, None
        self.taint("it is closed")
        if self._owner == os.getpid():
            self.kill(list(range(self.size)))
            deadline = time.monotonic() + END_LIMIT
            while any(member.ended is None for member in self.members) and time.monotonic() < deadline:
                self.loop.step(deadline - time.monotonic())
            ranks.release()
        else:
            for member in self.members:
                member.close()
        self.loop.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
