"""The warm fork server: a process that has imported everything, touched nothing, and forks ranks on request.

It is started as a clean process in a session of its own (`harness.world.forkserver`), and has one thread.
A client sends requests over a packet socket, each rank's file descriptors travelling beside its request. When a
client is gone, however it died, its ranks and all that they started are killed; when the last one is gone, the
server ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from harness.world import processes
from harness.world.leftovers import free_job_memory, job_memory, sweep
from harness.world.spec import PRELOAD, RankSpec

#: A request or notice with its descriptors; larger ones are refused by the sender's kernel.
PACKET = 1 << 17
DESCRIPTORS = 8


class Fork(NamedTuple):
    """Client to server, with the rank's descriptors: channel, stdout, stderr, stacks, and rank 0's store socket."""

    spec: RankSpec


class Kill(NamedTuple):
    """Client to server: end these ranks and whatever they started."""

    pids: tuple[int, ...]


class Preload(NamedTuple):
    """Client to server: import these too; answered by Ready."""

    names: tuple[str, ...]
    path: tuple[str, ...]


class Connect(NamedTuple):
    """Client to server, with one end of a packet socket: serve this client too (it was forked from the sender)."""


class Ready(NamedTuple):
    """Server to client: imports are done. ``threads`` is the number of threads the server has now."""

    pid: int
    threads: int
    missing: tuple[str, ...]
    error: str = ""


class Forked(NamedTuple):
    """Server to client: the rank of that world has this process id; 0 if it could not be forked, and why."""

    tag: str
    rank: int
    pid: int
    error: str = ""


class Ended(NamedTuple):
    """Server to client: the rank's process ended, and nothing that it started is left."""

    pid: int
    how: str


@dataclass
class _Client:
    sock: socket.socket
    ranks: dict[int, RankSpec] = field(default_factory=dict)
    folders: dict[str, tuple[str, list[int]]] = field(default_factory=dict)  # tag -> folder, pids it has had


class ForkServer:
    """The server's loop. ``serve`` returns when the last client is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients: list[_Client] = []
        wake, self._wake_write = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake_write, False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._join(sock)

    def _join(self, sock: socket.socket) -> None:
        client = _Client(sock)
        self._clients.append(client)
        self._selector.register(sock, selectors.EVENT_READ, client)

    def serve(self, missing: tuple[str, ...]) -> None:
        """Serve until the last client is gone."""
        self._tell(self._clients[0], _ready(missing))
        while self._clients:
            for key, _ in self._selector.select():
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._reap()
                elif key.data in self._clients:
                    self._request(key.data)

    def _request(self, client: _Client) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(client.sock, PACKET, DESCRIPTORS)
        except OSError:
            data, fds = b"", []
        if not data:
            self._leave(client)
            return
        request = pickle.loads(data)
        if isinstance(request, Fork):
            self._fork(client, request.spec, fds)
        elif isinstance(request, Kill):
            self._end(set(request.pids) & set(client.ranks))
        elif isinstance(request, Preload):
            self._preload(client, request)
        elif isinstance(request, Connect):
            self._join(socket.socket(fileno=fds[0]))
            self._tell(self._clients[-1], _ready(()))

    def _preload(self, client: _Client, request: Preload) -> None:
        sys.path += [entry for entry in request.path if entry not in sys.path]
        try:
            notice = _ready(preload(request.names))
        except Exception:  # noqa: BLE001 - whatever a module raises at import is told to who asked for it
            notice = _ready((), traceback.format_exc())
        gc.freeze()
        self._tell(client, notice)

    def _fork(self, client: _Client, spec: RankSpec, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(client, Forked(spec.tag, spec.rank, 0, str(error)))
            pid = -1
        if pid == 0:
            self._become_rank(spec, fds)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            client.ranks[pid] = spec
            client.folders.setdefault(spec.tag, (spec.folder, []))[1].append(pid)
            self._tell(client, Forked(spec.tag, spec.rank, pid))

    def _become_rank(self, spec: RankSpec, fds: list[int]) -> NoReturn:
        """In the child: let go of everything that is the server's, and run the rank."""
        parent = os.getppid()
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            os.close(self._wake)
            os.close(self._wake_write)
            for client in self._clients:
                client.sock.close()
            from harness.world import rank

            rank.main(spec, fds, parent)
        except BaseException:  # noqa: BLE001 - there is nobody above to tell
            traceback.print_exc()
        finally:
            os._exit(70)

    def _reap(self) -> None:
        """Take the status of every child that ended, end what it started, and tell its client."""
        ended: dict[int, str] = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended[pid] = processes.how_it_ended(status)
        ranks = {pid for client in self._clients for pid in client.ranks}
        if not ended.keys() & ranks:
            return
        alive = ranks - ended.keys()
        processes.kill_where(lambda process: process.session in ended or self._adopted(process, alive))
        for client in self._clients:
            for pid in ended.keys() & client.ranks.keys():
                del client.ranks[pid]
                self._tell(client, Ended(pid, ended[pid]))

    @staticmethod
    def _adopted(process: processes.Stat, ranks: set[int]) -> bool:
        """Whether a process came to the server because the one that made it is dead."""
        return process.parent == os.getpid() and process.pid not in ranks

    @staticmethod
    def _end(pids: set[int]) -> None:
        """Kill ranks with all they started: their sessions, and whatever left those."""
        if not pids:
            return
        below = {process.pid for pid in pids for process in processes.descendants(pid)}
        shared = job_memory(pids)

        def theirs(process: processes.Stat) -> bool:
            return process.session in pids or process.pid in below

        for pid in pids:
            processes.kill_quietly(pid)
        processes.kill_where(theirs)
        free_job_memory(shared, theirs)

    def _leave(self, client: _Client) -> None:
        """The client is gone: so is everything it had."""
        self._selector.unregister(client.sock)
        client.sock.close()
        self._clients.remove(client)
        self._end(set(client.ranks))
        others = {pid for other in self._clients for pid in other.ranks}
        processes.kill_where(lambda process: self._adopted(process, others))
        for tag, (folder, pids) in client.folders.items():
            sweep(folder, tag, pids)

    @staticmethod
    def _tell(client: _Client, notice: Any) -> None:
        with contextlib.suppress(OSError):  # it died; the next select says so
            client.sock.send(pickle.dumps(notice), socket.MSG_NOSIGNAL)


def _ready(missing: tuple[str, ...], error: str = "") -> Ready:
    return Ready(os.getpid(), len(os.listdir("/proc/self/task")), missing, error)


def preload(names: tuple[str, ...]) -> tuple[str, ...]:
    """Import what ranks will need; return the names that are not installed."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise
            missing.append(name)
    if "deepspeed" in sys.modules:
        # Only inference uses this extension, and the first init_distributed would compile it for minutes.
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    return tuple(missing)


def main() -> None:
    """The server's whole life. ``sys.argv`` holds the socket's descriptor and the names to import."""
    processes.die_with_parent(signal.SIGKILL)  # while imports keep it from watching the socket
    processes.become_subreaper()
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    if select.select([sock], [], [], 0)[0]:
        return  # the client is gone: nothing else can be here before it was told that we are ready
    missing = preload(PRELOAD + tuple(sys.argv[2:]))
    gc.collect()
    gc.freeze()  # so that ranks do not copy the pages of what is never collected
    processes.use_huge_pages()
    processes.die_with_parent(0)
    ForkServer(sock).serve(missing)
    os._exit(0)  # nothing is left to tidy, and unloading these libraries takes a while
