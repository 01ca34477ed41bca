"""The process that torchrun, srun or mpirun starts for each rank: it keeps the rank and does as the supervisor says.

The rank itself is forked beside it, from a fork server of its own, so that a rank that dies or is killed can be
replaced without starting the job anew. Output, stacks and the end of the rank go through the agent; the control
channel is the rank's own connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any

import psutil

from harness.errors import WorldError
from harness.world import agent_messages as m
from harness.world import processes
from harness.world.channel import Channel
from harness.world.external import External
from harness.world.forkserver import ForkServer
from harness.world.key import Address
from harness.world.launch import accelerator
from harness.world.leftovers import sweep
from harness.world.place import LAUNCHERS, Place
from harness.world.spec import RankSpec, ServerSpec

#: How long the supervisor may take to listen, in seconds.
PATIENCE = 600.0
_STREAMS = ("stdout", "stderr", "stacks")
_READ = 1 << 16


def connect(
    address: Address, key: bytes, hello: Any, patience: float = PATIENCE, gone: Callable[[], bool] = lambda: False
) -> socket.socket:
    """An authenticated connection to the supervisor, ``hello`` said. Raises WorldError if it can't be had: the key is
    wrong, or it does not listen, for ``patience`` seconds or for good.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = Client(address, authkey=key)
            break
        except AuthenticationError as error:
            raise WorldError(f"the supervisor at {address[0]}:{address[1]} has another key: set HARNESS_KEY") from error
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline or gone():
                raise WorldError(f"no supervisor listens at {address[0]}:{address[1]}: {error}") from error
            time.sleep(0.1)
    connection.send(hello)
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@dataclass
class _Rank:
    """The rank that runs now. ``pipes`` are its streams that are still open, by name."""

    server: ForkServer
    pid: int
    pipes: dict[str, int]


class Agent:
    """See the module. ``run`` returns the exit status that the supervisor wishes."""

    def __init__(self, place: Place, address: Address, key: bytes, gone: Callable[[], bool] = lambda: False) -> None:
        self._place, self._address, self._key = place, address, key
        self._supervisor = Channel(connect(address, key, m.Hello(place, socket.gethostname()), gone=gone))
        self._servers: dict[str, ForkServer] = {}
        self._stores: dict[str, socket.socket] = {}
        self._ranks: dict[int, _Rank] = {}
        self._folders: dict[str, tuple[str, list[int]]] = {}
        self._sync = False

    def run(self) -> int:
        """Serve until the supervisor is gone, which is status 1, or says that all is done."""
        try:
            while True:
                self._wait()
                for message in self._supervisor.receive():
                    if isinstance(message, m.Leave):
                        return message.status
                    self._obey(message)
                if self._supervisor.closed:
                    return 1
                for server in self._servers.values():
                    server.receive()
                self._relay()
                if self._sync and not self._supervisor.backlog:
                    self._sync = False
                    self._supervisor.send(m.Synced())
                self._report_ends()
        finally:
            for server in self._servers.values():
                server.close()
            for tag in list(self._folders):
                self._forget(tag)

    def _wait(self) -> None:
        """Until something happens. Output is left in its pipes while the supervisor is slow to take it."""
        with selectors.DefaultSelector() as selector:
            backlog = self._supervisor.backlog
            selector.register(self._supervisor, selectors.EVENT_READ | (selectors.EVENT_WRITE if backlog else 0))
            for server in self._servers.values():
                if not server.dead:
                    selector.register(server, selectors.EVENT_READ)
            for rank in self._ranks.values() if not backlog else ():
                for fd in rank.pipes.values():
                    selector.register(fd, selectors.EVENT_READ)
            selector.select(5.0)
        self._supervisor.flush()

    # --- requests -------------------------------------------------------------------------------------------

    def _obey(self, message: Any) -> None:
        send = self._supervisor.send
        match message:
            case m.Bind(tag):
                host = _own_host(self._address)
                store = self._stores[tag] = socket.create_server((host, 0), backlog=1024)
                send(m.Bound(tag, host, store.getsockname()[1]))
            case m.Launch(spec, preload):
                try:
                    send(m.Launched(spec.tag, self._launch(spec, preload), ""))
                except (WorldError, OSError) as error:
                    send(m.Launched(spec.tag, 0, str(error)))
            case m.End(pid):
                if pid in self._ranks:
                    self._ranks[pid].server.kill([pid])
            case m.Ask(pid):
                send(m.Asked(self._ranks[pid].server.ask_stack(pid) if pid in self._ranks else "dead"))
            case m.Look(pid, limit, native):
                found = self._ranks[pid].server.native_stacks([pid], limit, native) if pid in self._ranks else {}
                send(m.Looked(found.get(pid, "")))
            case m.Sync():
                self._sync = True
            case m.Forget(tag):
                self._forget(tag)

    def _launch(self, spec: RankSpec, preload: tuple[str, ...]) -> int:
        server = self._server(spec.backend)
        server.wait_ready()
        server.preload(preload)
        folder = tempfile.mkdtemp(prefix=f"{spec.tag}-{spec.rank}-")
        self._folders[spec.tag] = folder, []
        spec = replace(spec, folder=folder, local_rank=self._place.local_rank, local_size=self._place.local_size)
        pipes = [os.pipe() for _ in _STREAMS]
        store = self._stores.pop(spec.tag, None)
        with connect(self._address, self._key, m.Channel(spec.tag, spec.rank), 10.0) as channel:
            fds = [channel.fileno(), *(write for _, write in pipes)]
            server.fork(spec, fds if store is None else [*fds, store.fileno()])
        for _, write in pipes:
            os.close(write)
        if store is not None:
            store.close()
        pid = server.pid_of(spec)
        for read, _ in pipes:
            os.set_blocking(read, False)
        self._ranks[pid] = _Rank(server, pid, dict(zip(_STREAMS, (read for read, _ in pipes), strict=True)))
        self._folders[spec.tag][1].append(pid)
        return pid

    def _server(self, backend: str) -> ForkServer:
        """The fork server for ranks of the backend: those of an accelerator have one of their own."""
        env = _network(self._address) + accelerator(backend)
        name = str(accelerator(backend))
        if name not in self._servers or self._servers[name].dead:
            self._servers[name] = ForkServer.shared(ServerSpec(env=env))
        return self._servers[name]

    def _forget(self, tag: str) -> None:
        folder, pids = self._folders.pop(tag, ("", []))
        if folder:
            sweep(folder, tag, pids)

    # --- reports --------------------------------------------------------------------------------------------

    def _relay(self) -> None:
        """Send on what ranks wrote, as far as the supervisor takes it."""
        for rank in self._ranks.values():
            for name, fd in list(rank.pipes.items()):
                while not self._supervisor.backlog:
                    try:
                        data = os.read(fd, _READ)
                    except BlockingIOError:
                        break
                    if not data:
                        os.close(rank.pipes.pop(name))
                        break
                    self._supervisor.send(m.Output(rank.pid, name, data))

    def _report_ends(self) -> None:
        """Tell of ranks that ended, once their last output is on its way."""
        for pid, rank in list(self._ranks.items()):
            how = rank.server.ended.get(pid) or ("lost: its fork server is gone" if rank.server.dead else None)
            if how is None or self._supervisor.backlog:
                continue
            self._relay()
            for fd in rank.pipes.values():
                os.close(fd)
            del self._ranks[pid]
            self._supervisor.send(m.Ended(pid, how))


def _own_host(address: Address) -> str:
    """This machine's address on the way to the supervisor."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _network(address: Address) -> tuple[tuple[str, str], ...]:
    """The interface that gloo is to use: the one that leads to the supervisor, unless the environment names one."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return ()
    host = _own_host(address)
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == host for found in addresses):
            return (("GLOO_SOCKET_IFNAME", name),)
    return ()


def main(place: Place, address: Address, key: bytes, pytest: list[str] | None) -> int:
    """The agent's whole life. With ``pytest``, rank 0 also runs pytest with these arguments, as the supervisor, and
    its exit status is pytest's."""
    processes.die_with_parent(signal.SIGKILL)  # a launcher that is killed tells nobody
    if pytest is None or place.rank != 0:
        return Agent(place, address, key).run()
    own = {name for _, *names in LAUNCHERS for name in names} | {"MASTER_ADDR", "MASTER_PORT"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {
        "HARNESS_RANKS": str(place.size),
        "HARNESS_LISTEN": f"{address[0]}:{address[1]}",
        "HARNESS_KEY": key.hex(),
    }
    tests = subprocess.Popen(
        [sys.executable, "-m", "pytest", *pytest],
        env=environment,
        preexec_fn=lambda: processes.die_with_parent(signal.SIGKILL),
    )
    try:
        Agent(place, address, key, lambda: tests.poll() is not None).run()
    except WorldError:
        if tests.poll() is None:
            raise
        External(place.size, address, key).dismiss(place.size - 1, limit=30.0)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            tests.wait(60)
        tests.kill()
    return tests.wait()
