"""Processes of a script on this machine, watched by process id: children of ours, or of the script's own launcher."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess

from harness.world import processes, stacks


class Processes:
    """A host of rank processes; see `harness.world.member.Host`. How a launcher's child ended, only it knows."""

    def __init__(self) -> None:
        self.ended: dict[int, str] = {}
        self.dead = False
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._poll = select.epoll()
        self._watched: dict[int, int] = {}  # descriptor -> process id

    def add_child(self, child: subprocess.Popen[bytes]) -> None:
        """Watch a process that this one started."""
        self._children[child.pid] = child
        self.watch(child.pid)

    def watch(self, pid: int) -> None:
        """Watch a process."""
        if pid in self._watched.values() or pid in self.ended:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._end(pid)
            return
        self._watched[descriptor] = pid
        self._poll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def receive(self) -> None:
        """Take note of those that ended."""
        for descriptor, _ in self._poll.poll(0):
            self._poll.unregister(descriptor)
            os.close(descriptor)
            self._end(self._watched.pop(descriptor))

    def _end(self, pid: int) -> None:
        child = self._children.get(pid)
        if child is None:
            self.ended[pid] = "ended (its launcher knows how)"
        else:
            code = child.wait()
            self.ended[pid] = f"signal {-code}" if code < 0 else f"exit {code}"

    def sync(self) -> None:
        """Nothing: their output comes by streams of their own."""

    def kill(self, pids: list[int]) -> None:
        """End these processes, their sessions where they lead one, and all they started."""
        below = {process.pid for pid in pids for process in processes.descendants(pid)}
        for pid in pids:
            if pid not in self.ended:
                processes.kill_quietly(pid)
        processes.kill_where(lambda process: process.session in pids or process.pid in below)

    def ask_stack(self, pid: int) -> str:
        """See `harness.world.member.Host`."""
        return stacks.ask(pid)

    def native_stacks(self, pids: list[int], limit: float, native: bool) -> dict[int, str]:
        """See `harness.world.member.Host`."""
        return stacks.from_outside(pids, limit, native)

    def close(self) -> None:
        """Watch nothing any more."""
        for descriptor in self._watched:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._watched.clear()
        self._poll.close()
