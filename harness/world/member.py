"""A rank as the supervisor's side sees it, and the host that keeps its process."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Protocol

from harness.world.capture import Capture
from harness.world.channel import Channel


class Host(Protocol):
    """Where rank processes live: a fork server of this machine, or an agent of another one.

    ``ended`` maps process ids to how they ended; ``receive`` brings it up to date and must not block.
    """

    ended: dict[int, str]

    @property
    def dead(self) -> bool:
        """Whether it is gone, and all its processes with it."""

    def fileno(self) -> int: ...

    def receive(self) -> None: ...

    def sync(self) -> None:
        """Bring in what its processes have written so far, where that does not come by streams of their own."""

    def kill(self, pids: list[int]) -> None:
        """End these processes and all they started; ``ended`` tells when it is done."""

    def ask_stack(self, pid: int) -> str:
        """Have the process write its Python stacks to its stack stream; or why it can't, as its state in words."""

    def native_stacks(self, pids: list[int], limit: float, native: bool) -> dict[int, str]:
        """Stacks taken from outside the processes, within ``limit`` seconds; missing where that is not permitted."""


@dataclass
class Member:
    """One rank of a world. ``streams`` maps descriptors that can be read to where their bytes are kept."""

    rank: int
    pid: int
    host: Host
    channel: Channel
    streams: dict[int, Capture] = field(default_factory=dict)
    stdout: Capture = field(default_factory=Capture)
    stderr: Capture = field(default_factory=Capture)
    stacks: Capture = field(default_factory=lambda: Capture(1 << 16, 1 << 16))

    @property
    def ended(self) -> str | None:
        """How the process ended, or None while it lives."""
        how = self.host.ended.get(self.pid)
        if how is None and self.host.dead:
            return "lost: the process that kept it is gone"
        return how

    def fresh(self) -> None:
        """Begin new captures: what comes from here on belongs to another run."""
        old = {id(self.stdout): "stdout", id(self.stderr): "stderr", id(self.stacks): "stacks"}
        self.stdout, self.stderr = Capture(), Capture()
        self.stacks = Capture(1 << 16, 1 << 16)
        self.streams = {fd: getattr(self, old[id(kept)]) for fd, kept in self.streams.items()}

    def close(self) -> None:
        """Let go of all descriptors."""
        self.channel.close()
        for fd in self.streams:
            os.close(fd)
        self.streams = {}
