"""The client's side of the fork server: starts it, asks it for ranks, hears how they ended.

There is one server per :class:`~harness.world.spec.ServerSpec` and process. A process forked from the server's client
(pytest-forked does that) does not start another: it joins its parent's server as a client of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from harness.errors import WorldError
from harness.world import processes, stacks
from harness.world.server import DESCRIPTORS, PACKET, Connect, Ended, Fork, Forked, Kill, Preload, Ready
from harness.world.spec import RankSpec, ServerSpec

_MAIN = "import sys; sys.path[:] = {path!r}; from harness.world.server import main; main()"
#: How long a server may take to import everything, in seconds.
START_LIMIT = 180.0
_shared: dict[ServerSpec, ForkServer] = {}


class ForkServer:
    """A host of rank processes on this machine; see :class:`~harness.world.member.Host`."""

    def __init__(self, spec: ServerSpec) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = [*spec.path, *(os.path.abspath(entry) for entry in sys.path)]
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-c", _MAIN.format(path=path), str(theirs.fileno()), *spec.preload],
            pass_fds=(theirs.fileno(),),
            env=spec.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._begin(ours)
        self._preloaded = set(spec.preload)

    def _begin(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._owner = os.getpid()
        self.ready: Ready | None = None
        self.ended: dict[int, str] = {}
        self.dead = False
        self._forked: dict[tuple[str, int], Forked] = {}
        self._living: set[int] = set()

    @classmethod
    def shared(cls, spec: ServerSpec | None = None) -> ForkServer:
        """This process's server of that kind, started if there is none."""
        spec = spec or ServerSpec()
        server = _shared.get(spec)
        if server is not None and server._owner != os.getpid():
            server._rejoin()
        if server is None or server.dead:
            server = _shared[spec] = cls(spec)
        return server

    def _rejoin(self) -> None:
        """In a process forked from the client: become a client of the same server."""
        inherited = self._sock
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(inherited, [pickle.dumps(Connect())], [theirs.fileno()])
        except OSError:
            ours.close()
            self.dead = True
            return
        finally:
            theirs.close()
            inherited.close()
        self._process = None
        self._begin(ours)

    # --- requests -------------------------------------------------------------------------------------------

    def preload(self, names: Sequence[str]) -> None:
        """Have the server import modules, so that ranks forked from now on have them. Raises what the import raised,
        as WorldError; a name that is not installed is passed over."""
        wanted = tuple(name for name in names if name not in self._preloaded)
        if not wanted:
            return
        self.wait_ready()
        self.ready = None
        self._request(Preload(wanted, tuple(os.path.abspath(entry) for entry in sys.path)))
        self.wait_ready()
        self._preloaded |= set(wanted)

    def wait_ready(self, limit: float = START_LIMIT) -> None:
        """Wait until imports are done. Raises WorldError if they fail or take longer."""
        deadline = time.monotonic() + limit
        while self.ready is None:
            if self.dead:
                raise WorldError(f"the fork server ended while importing{self._exit_code()}; its stderr says why")
            self._wait(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise WorldError(f"the fork server took longer than {limit:.0f} s to import")
        error, self.ready = self.ready.error, self.ready._replace(error="")
        if error:
            raise WorldError(f"a module that was to be preloaded failed to import:\n{error}")

    def _exit_code(self) -> str:
        if self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f" (exit code {self._process.wait(1)})"
        return ""

    def fork(self, spec: RankSpec, fds: Sequence[int]) -> None:
        """Ask for a rank. ``fds`` go to it: channel, stdout, stderr, stacks, and on rank 0 the store's socket."""
        assert len(fds) <= DESCRIPTORS
        self._request(Fork(spec), fds)

    def pid_of(self, spec: RankSpec, limit: float = 30.0) -> int:
        """Wait for a rank that was asked for; returns its process id. Raises WorldError if it could not be forked."""
        deadline = time.monotonic() + limit
        while (spec.tag, spec.rank) not in self._forked:
            if self.dead or time.monotonic() > deadline:
                raise WorldError(f"the fork server {'ended' if self.dead else 'hangs'}: rank {spec.rank} not started")
            self._wait(deadline - time.monotonic())
        notice = self._forked.pop((spec.tag, spec.rank))
        if not notice.pid:
            raise WorldError(f"rank {spec.rank} could not be forked: {notice.error}")
        return notice.pid

    def sync(self) -> None:
        """See :class:`~harness.world.member.Host`: ranks of this machine have streams of their own."""

    def kill(self, pids: list[int]) -> None:
        """End these ranks and all they started; ``ended`` tells when it is done."""
        if self.dead:
            self._bury()
        elif pids:
            self._request(Kill(tuple(pids)))

    def _request(self, request: Any, fds: Sequence[int] = ()) -> None:
        if self._owner != os.getpid():
            return  # a forked copy of somebody else's world
        data = pickle.dumps(request)
        assert len(data) < PACKET, "requests are small"
        while not self.dead:
            try:
                socket.send_fds(self._sock, [data], list(fds), socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                select.select([], [self._sock], [], 1.0)
            except OSError:
                self._bury()

    # --- notices --------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> None:
        """Take all notices that are here now."""
        while not self.dead:
            try:
                data = self._sock.recv(PACKET)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._bury()
                return
            notice = pickle.loads(data)
            if isinstance(notice, Ready):
                self.ready = notice
            elif isinstance(notice, Forked):
                self._forked[notice.tag, notice.rank] = notice
                self._living |= {notice.pid} - {0}
                self.ended.pop(notice.pid, None)  # of an earlier process that had the same id
            elif isinstance(notice, Ended):
                self.ended[notice.pid] = notice.how
                self._living.discard(notice.pid)

    def _wait(self, seconds: float) -> None:
        select.select([self._sock], [], [], max(seconds, 0))
        self.receive()

    def _bury(self) -> None:
        """The server is gone. Its ranks die with it; what they started is left to this process to end."""
        self.dead = True
        living, self._living = self._living, set()
        processes.kill_where(lambda process: process.session in living)

    # --- stacks ---------------------------------------------------------------------------------------------

    def ask_stack(self, pid: int) -> str:
        """See :class:`~harness.world.member.Host`."""
        return stacks.ask(pid)

    def native_stacks(self, pids: list[int], limit: float, native: bool) -> dict[int, str]:
        """See :class:`~harness.world.member.Host`."""
        return stacks.from_outside(pids, limit, native)

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, limit: float = 1.5) -> None:
        """End the server and all its ranks."""
        self._sock.close()
        self.dead = True
        if self._process is None or self._owner != os.getpid():
            return
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            below = {process.pid for process in processes.descendants(self._process.pid)}
            self._process.kill()
            self._process.wait()
            processes.kill_where(lambda process: process.pid in below or process.session in below)


def close_all() -> None:
    """End all servers of this process."""
    for server in list(_shared.values()):
        if server._owner == os.getpid():
            server.close()
    _shared.clear()


atexit.register(close_all)
