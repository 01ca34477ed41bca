"""Starts a script's processes, or the launcher that does, and takes them in as the ranks of a world."""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from harness import backends
from harness.errors import WorldError
from harness.script import attach, devices
from harness.script.processes import Processes
from harness.world.capture import Capture
from harness.world.channel import Channel
from harness.world.launch import Ranks
from harness.world.member import Member
from harness.world.messages import Exit
from harness.world.spec import ENVIRONMENT
from harness.world.world import World

_BOOT = Path(__file__).with_name("boot")
_ROOT = Path(__file__).parents[2]
#: What tells a process that it is a rank; a launcher started here shall give these anew.
_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: After a run, its processes have so long to exit by themselves; in seconds.
AFTER_RUN = 60.0


class Live(Capture):
    """Output that is kept, and shown as it comes, whole lines with the rank before them."""

    def __init__(self, rank: int, size: int, to: BinaryIO) -> None:
        super().__init__()
        self._prefix = f"[{rank}] ".encode() if size > 1 else b""
        self._to = to
        self._begun = b""

    def feed(self, data: bytes) -> None:
        super().feed(data)
        *lines, self._begun = (self._begun + data).split(b"\n")
        if lines:
            self._to.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._to.flush()

    def finish(self) -> None:
        """Show a last line that has no end."""
        if self._begun:
            self.feed(b"\n")


class LiveMember(Member):
    """A member with one run, whose captures stay."""

    def fresh(self) -> None:
        """There is no other run to tell this one's output from."""


@dataclass
class Script:
    """``command`` as the ranks of a world; a `harness.world.launch.Launcher`, and a context manager.

    With ``nproc`` it is started once per rank, as torchrun would; without, it is a launcher, whose processes join as
    they come. ``limit``: so many seconds may pass until all have.
    """

    command: Sequence[str]
    backend: str
    nproc: int | None = None
    limit: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host = Processes()
        self.children: list[subprocess.Popen[bytes]] = []
        self._pipes: dict[int, tuple[int, int]] = {}  # rank -> descriptors of its output
        self.folder = tempfile.mkdtemp(prefix="harness-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(self.folder, "socket"))  # in a folder of mode 0700: nobody else may join
        self._listener.listen(128)
        self._joined: dict[int, Member] = {}
        self.size = self.nproc or 0

    def launch(self) -> int:
        """Start the processes; returns the number of ranks, which a launcher's first rank tells. Raises WorldError."""
        if self.nproc is None:
            self._start(dict.fromkeys(_RANK_VARIABLES, ""), None)
            self._accept()
        else:
            address = _free_port()
            for rank in range(self.nproc):
                self._start(_torchrun(rank, self.nproc, address), rank)
        return self.size

    def start(self, size: int, backend: str) -> Ranks:
        """See `harness.world.launch.Launcher`."""
        while len(self._joined) < size:
            self._accept()
        members = [self._joined[rank] for rank in range(size)]
        return Ranks(members, self.folder, f"harness{secrets.token_hex(6)}")

    def _start(self, variables: Mapping[str, str], rank: int | None) -> None:
        env = {**os.environ, **self.env}
        if backends.get(self.backend).spec.transport in devices.ON_HOST:
            env = {**ENVIRONMENT, **env}
        env |= {attach.SOCKET: self._listener.getsockname(), attach.ROOT: str(_ROOT), attach.FOLDER: self.folder}
        env |= {attach.BACKEND: self.backend, "PYTHONUNBUFFERED": "1"}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_BOOT), env.get("PYTHONPATH"))))
        env = {name: value for name, value in (env | dict(variables)).items() if name not in variables or value}
        output: dict[str, Any] = {}
        if rank is not None:
            (out, stdout), (err, stderr) = os.pipe(), os.pipe()
            self._pipes[rank] = out, err
            output = {"stdout": stdout, "stderr": stderr, "stdin": subprocess.DEVNULL}
        try:
            child = subprocess.Popen(self.command, env=env, start_new_session=True, **output)
        except OSError as error:
            raise WorldError(f"{self.command[0]!r} could not be started: {error.strerror}") from None
        finally:
            for descriptor in [output["stdout"], output["stderr"]] if output else []:
                os.close(descriptor)
        self.children.append(child)
        self.host.add_child(child)

    def _accept(self) -> None:
        """Take in the next process that joins. Raises WorldError if none does any more."""
        deadline = time.monotonic() + self.limit
        while True:
            waiting = [self._listener.fileno(), self.host.fileno()]
            ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
            if waiting[0] in ready:
                self._take_in(self._listener.accept()[0])
                return
            self.host.receive()
            lost = [child for child in self.children if child.pid in self.host.ended]
            if lost or not ready:
                raise WorldError(self._why(lost))

    def _take_in(self, sock: socket.socket) -> None:
        data, descriptors, _, _ = socket.recv_fds(sock, attach.HELLO.size, 1)
        rank, size, pid = attach.HELLO.unpack(data)
        self.size = self.size or size
        if size != self.size or rank in self._joined or not 0 <= rank < size:
            raise WorldError(f"process {pid} joined as rank {rank} of {size}, in a world of {self.size} ranks")
        self.host.watch(pid)
        member = LiveMember(rank, pid, self.host, Channel(sock))
        member.streams = {descriptors[0]: member.stacks}
        if rank in self._pipes:
            member.stdout, member.stderr = (Live(rank, size, s.buffer) for s in (sys.stdout, sys.stderr))
            member.streams |= dict(zip(self._pipes.pop(rank), (member.stdout, member.stderr), strict=True))
        self._joined[rank] = member

    def _why(self, lost: Sequence[subprocess.Popen[bytes]]) -> str:
        missing = f"{len(self._joined)} of {self.size or 'an unknown number of'} ranks had joined"
        if not lost:
            return f"after {self.limit:g} s, only {missing}: does every process call init_process_group?"
        how = self.host.ended[lost[0].pid]
        output = "".join(os.read(pipes[1], 1 << 16).decode(errors="replace") for pipes in self._pipes.values())
        return f"{self.command[0]} ended ({how}) when {missing}" + (f"; its stderr:\n{output}" if output else "")

    def finish(self, world: World) -> dict[int, str]:
        """Let the processes end by themselves now, and return how: by rank, or at -1 the launcher."""
        for member in world.members:
            member.channel.send(Exit())
        deadline = time.monotonic() + AFTER_RUN
        watched = [child.pid for child in self.children] + [member.pid for member in world.members]
        while any(pid not in self.host.ended for pid in watched) and time.monotonic() < deadline:
            world.loop.step(deadline - time.monotonic())
        world.loop.drain(world.members)
        if self.nproc is None:
            return {-1: self.host.ended.get(self.children[0].pid, "")}
        return {member.rank: self.host.ended.get(member.pid, "") for member in world.members}

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        """End what is left."""
        for member in self._joined.values():
            for capture in (member.stdout, member.stderr):
                if isinstance(capture, Live):
                    capture.finish()
        self.host.kill([child.pid for child in self.children])
        self._listener.close()
        for pipes in self._pipes.values():
            for descriptor in pipes:
                os.close(descriptor)
        for child in self.children:
            child.wait()
        self.host.close()


def _free_port() -> int:
    """A port that was free just now. Only a script's own use of ``MASTER_PORT`` needs it: ranks meet elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _torchrun(rank: int, size: int, port: int) -> dict[str, str]:
    """The environment that torchrun gives a rank of one node."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "LOCAL_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
