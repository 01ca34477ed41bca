"""Where a world's ranks come from. :class:`Launcher` is the protocol; :class:`Local` forks them on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness import backends
from harness.world.channel import Channel
from harness.world.forkserver import ForkServer
from harness.world.leftovers import sweep
from harness.world.member import Member
from harness.world.spec import RankSpec, ServerSpec


class Launcher(Protocol):
    """Gives a world its ranks."""

    def start(self, size: int, backend: str) -> Ranks:
        """Start ``size`` ranks; they report themselves on their channels. Raises WorldError."""


@dataclass
class Ranks:
    """The processes of one world, by rank, and what goes when they go."""

    members: list[Member]
    folder: str
    tag: str

    def release(self) -> None:
        """Let go of descriptors, and remove what was theirs outside the processes. All of them have ended."""
        for member in self.members:
            member.close()
        sweep(self.folder, self.tag, [member.pid for member in self.members])


@dataclass(frozen=True)
class Local:
    """Forks ranks from warm servers on this machine.

    ``preload`` names modules that ranks should find imported; ``env`` is set in every rank. ``hash_seeds`` gives
    each rank a ``PYTHONHASHSEED`` of its own, as processes that were not forked from one another have: one server
    for each different seed.
    """

    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hash_seeds: Sequence[int] = ()

    def start(self, size: int, backend: str) -> Ranks:
        """See :class:`Launcher`."""
        servers = [self._server(backend, rank) for rank in range(size)]
        for server in dict.fromkeys(servers):
            server.wait_ready()
            server.preload(self.preload)
        tag = f"harness{secrets.token_hex(6)}"
        folder = tempfile.mkdtemp(prefix=f"{tag}-")
        members: list[Member] = []
        try:
            with socket.create_server(("127.0.0.1", 0), backlog=max(128, size)) as store:
                specs = [
                    RankSpec(rank, size, backend, folder, tag, store.getsockname()[:2], rank, size, dict(self.env))
                    for rank in range(size)
                ]
                for server, spec in zip(servers, specs, strict=True):
                    members.append(_ask(server, spec, store))
                for server, spec, member in zip(servers, specs, members, strict=True):
                    member.pid = server.pid_of(spec)
        except BaseException:
            for member in members:
                member.host.kill([member.pid] if member.pid else [])
            Ranks(members, folder, tag).release()
            raise
        return Ranks(members, folder, tag)

    def _server(self, backend: str, rank: int) -> ForkServer:
        env = accelerator(backend)
        if self.hash_seeds:
            env += (("PYTHONHASHSEED", str(self.hash_seeds[rank % len(self.hash_seeds)])),)
        return ForkServer.shared(ServerSpec(env=env))


def accelerator(backend: str) -> tuple[tuple[str, str], ...]:
    """What tells DeepSpeed of a rank's device, if the backend drives one; else it is a CPU."""
    device = getattr(backends.get(backend), "device", None)
    return () if device is None else (("DS_ACCELERATOR", device),)


def _ask(server: ForkServer, spec: RankSpec, store: socket.socket) -> Member:
    """Ask for one rank; its process id comes later."""
    ours, theirs = socket.socketpair()
    pipes = [os.pipe() for _ in range(3)]
    try:
        fds = [theirs.fileno(), *(write for _, write in pipes)]
        server.fork(spec, [*fds, store.fileno()] if spec.rank == 0 else fds)
    finally:
        theirs.close()
        for _, write in pipes:
            os.close(write)
    member = Member(spec.rank, 0, server, Channel(ours))
    reads = [read for read, _ in pipes]
    member.streams = dict(zip(reads, (member.stdout, member.stderr, member.stacks), strict=True))
    return member
