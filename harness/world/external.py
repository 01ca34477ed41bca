"""Worlds of ranks that torchrun, srun or mpirun started, on this machine or on others.

The supervisor (pytest) listens; every launched process is an agent (`harness.world.agent`) that connects. All worlds
are made of these agents' ranks, a smaller world of the first ones.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import time
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any, TypeVar

from harness.errors import UsageError, WorldError
from harness.world import agent_messages as m
from harness.world.capture import Capture
from harness.world.channel import Channel
from harness.world.key import DEFAULT, Address, key, parse
from harness.world.launch import Ranks
from harness.world.member import Member
from harness.world.spec import RankSpec

Answer = TypeVar("Answer")
#: How long all agents may take to connect, a rank to start, and an agent to answer; seconds.
CONNECT_LIMIT = 600.0
LAUNCH_LIMIT = 240.0
ANSWER_LIMIT = 10.0


class AgentHost:
    """One agent as a host of processes; see :class:`~harness.world.member.Host`."""

    def __init__(self, channel: Channel, hello: m.Hello) -> None:
        self._channel = channel
        self.place, self.name = hello.place, hello.host
        self.ended: dict[int, str] = {}
        self.captures: dict[int, dict[str, Capture]] = {}
        self._answers: list[Any] = []

    @property
    def dead(self) -> bool:
        """Whether the connection to the agent is gone."""
        return self._channel.closed

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, request: Any) -> None:
        self._channel.send(request)

    def receive(self) -> None:
        """Take all that is here: output and ends are kept, answers wait for :meth:`answer`."""
        self._channel.flush()
        for message in self._channel.receive():
            if isinstance(message, m.Output):
                # What comes before Launched was handled belongs to the rank all the same.
                self._capture(message.pid)[message.stream].feed(message.data)
            elif isinstance(message, m.Ended):
                self.ended[message.pid] = message.how
            else:
                self._answers.append(message)

    def _capture(self, pid: int) -> dict[str, Capture]:
        return self.captures.setdefault(pid, {name: Capture() for name in ("stdout", "stderr", "stacks")})

    def answer(self, kind: type[Answer], limit: float) -> Answer:
        """Wait for the answer to a request. Raises WorldError if it doesn't come."""
        deadline = time.monotonic() + limit
        while True:
            for message in self._answers:
                if isinstance(message, kind):
                    self._answers.remove(message)
                    return message
            if self.dead or time.monotonic() > deadline:
                what = "is gone" if self.dead else f"did not answer within {limit:.0f} s"
                raise WorldError(f"the agent of rank {self.place.rank} on {self.name} {what}")
            select.select([self], [self] if self._channel.backlog else [], [], max(deadline - time.monotonic(), 0))
            self.receive()

    def sync(self) -> None:
        """See :class:`~harness.world.member.Host`."""
        if not self.dead:
            self.send(m.Sync())
            with contextlib.suppress(WorldError):
                self.answer(m.Synced, ANSWER_LIMIT)

    def kill(self, pids: list[int]) -> None:
        """See :class:`~harness.world.member.Host`."""
        for pid in pids:
            if pid and pid not in self.ended:
                self.send(m.End(pid))

    def ask_stack(self, pid: int) -> str:
        """See :class:`~harness.world.member.Host`."""
        self.send(m.Ask(pid))
        try:
            return self.answer(m.Asked, ANSWER_LIMIT).state
        except WorldError as error:
            return str(error)

    def native_stacks(self, pids: list[int], limit: float, native: bool) -> dict[int, str]:
        """See :class:`~harness.world.member.Host`."""
        found = {}
        for pid in pids:
            self.send(m.Look(pid, limit, native))
            with contextlib.suppress(WorldError):
                found[pid] = self.answer(m.Looked, limit + ANSWER_LIMIT).text
        return found


@dataclass
class External:
    """A launcher whose ranks were started by somebody else; see :class:`~harness.world.launch.Launcher`.

    ``size`` is how many processes that one starts.
    """

    size: int
    address: Address
    key: bytes = field(repr=False)
    preload: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._listener = Listener(self.address, backlog=max(128, self.size), authkey=self.key)
        self.address = self._listener.address
        self._agents: dict[int, AgentHost] = {}
        self._owner = os.getpid()

    @classmethod
    def from_environment(cls) -> External | None:
        """As ``HARNESS_RANKS``, ``HARNESS_LISTEN`` and ``HARNESS_KEY`` say; None where the first is not set."""
        ranks = os.environ.get("HARNESS_RANKS", "")
        if not ranks:
            return None
        if not ranks.isdigit() or int(ranks) < 1:
            raise UsageError(f"HARNESS_RANKS={ranks!r}: the number of launched processes is expected")
        return cls(int(ranks), parse(os.environ.get("HARNESS_LISTEN", DEFAULT)), key())

    def start(self, size: int, backend: str) -> Ranks:
        """See :class:`~harness.world.launch.Launcher`. Waits until all agents have connected."""
        if size > self.size:
            raise UsageError(f"a world of {size} ranks: the launcher started {self.size} processes")
        self._await_agents()
        tag = f"harness{secrets.token_hex(6)}"
        hosts = [self._agents[rank] for rank in range(size)]
        hosts[0].send(m.Bind(tag))
        bound = hosts[0].answer(m.Bound, ANSWER_LIMIT)
        for rank, host in enumerate(hosts):
            spec = RankSpec(rank, size, backend, "", tag, (bound.host, bound.port), 0, 0)
            host.send(m.Launch(spec, self.preload))
        channels = self._await_channels(tag, hosts)
        members: list[Member] = []
        for rank, host in enumerate(hosts):
            launched = host.answer(m.Launched, LAUNCH_LIMIT)
            if not launched.pid:
                raise WorldError(f"rank {rank} could not be started on {host.name}: {launched.error}")
            host.ended.pop(launched.pid, None)
            members.append(_RemoteMember(rank, launched.pid, host, channels[rank]))
        return _RemoteRanks(members, "", tag)

    def _await_agents(self) -> None:
        deadline = time.monotonic() + CONNECT_LIMIT
        for rank, host in list(self._agents.items()):
            host.receive()
            if host.dead:
                raise WorldError(f"the launched process of rank {rank} on {host.name} is gone")
        while len(self._agents) < self.size:
            missing = sorted(set(range(self.size)) - set(self._agents))
            connection = self._accept(deadline, f"ranks {missing} did not connect to {self.address}")
            hello = connection.recv()
            if not isinstance(hello, m.Hello) or hello.place.size != self.size or hello.place.rank in self._agents:
                connection.close()
                raise WorldError(f"an agent that does not fit connected: {hello}, where {self.size} are expected")
            self._agents[hello.place.rank] = AgentHost(_channel(connection), hello)

    def _await_channels(self, tag: str, hosts: list[AgentHost]) -> dict[int, Channel]:
        """The control channels of a world's ranks, which these open themselves."""
        found: dict[int, Channel] = {}
        deadline = time.monotonic() + LAUNCH_LIMIT
        while len(found) < len(hosts):
            connection = self._accept(deadline, f"ranks {sorted(set(range(len(hosts))) - set(found))} did not start")
            hello = connection.recv()
            if isinstance(hello, m.Channel) and hello.tag == tag:
                found[hello.rank] = _channel(connection)
            else:
                connection.close()
        return found

    def _accept(self, deadline: float, late: str) -> Connection:
        """The next connection that knows the key; others are dropped. Raises WorldError at the deadline."""
        sock = self._listener._listener._socket  # type: ignore[attr-defined]
        while time.monotonic() < deadline:
            if not select.select([sock], [], [], max(deadline - time.monotonic(), 0))[0]:
                break
            with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):
                return self._listener.accept()
        raise WorldError(f"{late} in time")

    def dismiss(self, missing: int, limit: float) -> None:
        """Let agents go that no test asked for: as many as ``missing`` may still connect, within ``limit`` seconds."""
        deadline = time.monotonic() + limit
        with contextlib.suppress(WorldError):
            for _ in range(missing):
                hello = (connection := self._accept(deadline, "")).recv()
                self._agents[hello.place.rank] = AgentHost(_channel(connection), hello)
        self.close()

    def close(self, status: int = 0) -> None:
        """Let the agents go; they end with ``status``."""
        if self._owner == os.getpid():
            for host in self._agents.values():
                host.send(m.Leave(status))
        self._listener.close()


class _RemoteMember(Member):
    """A rank whose output comes through its agent."""

    def __init__(self, rank: int, pid: int, host: AgentHost, channel: Channel) -> None:
        super().__init__(rank, pid, host, channel)
        self._agent = host
        self.fresh()

    def fresh(self) -> None:
        """See :class:`~harness.world.member.Member`."""
        self._agent.captures.pop(self.pid, None)
        kept = self._agent._capture(self.pid)
        self.stdout, self.stderr, self.stacks = kept["stdout"], kept["stderr"], kept["stacks"]


class _RemoteRanks(Ranks):
    def release(self) -> None:
        """See :class:`~harness.world.launch.Ranks`."""
        for member in self.members:
            member.close()
            assert isinstance(member.host, AgentHost)
            member.host.send(m.Forget(self.tag))
            member.host.captures.pop(member.pid, None)


def _channel(connection: Connection) -> Channel:
    """The connection carried on without its object, which would close it."""
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Channel(sock)
