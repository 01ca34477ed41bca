"""Waits for everything a world's ranks and hosts may say, without ever blocking on one of them."""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Sequence
from typing import Any

from harness.world.member import Host, Member

_READ = 1 << 16
#: At most so much of one stream per step, so that a rank that floods its output delays no message.
_FLOOD = 1 << 20


class Loop:
    """The descriptors of one world."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._members: list[Member] = []
        self._writing: set[int] = set()

    def add_host(self, host: Host) -> None:
        self._selector.register(host.fileno(), selectors.EVENT_READ, host)

    def add(self, member: Member) -> None:
        self._members.append(member)
        self._selector.register(member.channel.fileno(), selectors.EVENT_READ, member)
        for fd in member.streams:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (member, fd))

    def step(self, timeout: float | None) -> list[tuple[Member, Any]]:
        """Wait until something happens, at most ``timeout`` seconds; returns the messages that came, in order.

        Output goes to the members' captures, ends of processes to their hosts.
        """
        self._watch_writers()
        messages: list[tuple[Member, Any]] = []
        for key, events in self._selector.select(None if timeout is None else max(timeout, 0)):
            if isinstance(key.data, Member):
                member = key.data
                if events & selectors.EVENT_WRITE:
                    member.channel.flush()
                if events & selectors.EVENT_READ:
                    messages += ((member, message) for message in member.channel.receive())
                    if member.channel.closed:
                        self._forget(key.fd)
            elif isinstance(key.data, tuple):
                self._read(*key.data)
            else:
                self._hear(key.data, key.fd)
        return messages

    def drain(self, members: Sequence[Member]) -> None:
        """Take what output is there now."""
        for host in {id(member.host): member.host for member in members}.values():
            host.sync()
        for member in members:
            for fd in list(member.streams):
                self._read(member, fd)

    def close(self) -> None:
        self._selector.close()

    def _hear(self, host: Host, fd: int) -> None:
        host.receive()
        if host.dead:
            self._forget(fd)

    def _read(self, member: Member, fd: int) -> None:
        capture = member.streams[fd]
        taken = 0
        try:
            while taken < _FLOOD:
                data = os.read(fd, _READ)
                if not data:
                    self._forget(fd)
                    del member.streams[fd]
                    os.close(fd)
                    return
                capture.feed(data)
                taken += len(data)
        except BlockingIOError:
            return

    def _watch_writers(self) -> None:
        """Ask for room to write exactly where something waits to be written."""
        for member in self._members:
            channel = member.channel
            if channel.closed or channel.backlog == (member.rank in self._writing):
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.backlog else 0)
            self._selector.modify(channel.fileno(), events, member)
            self._writing ^= {member.rank}

    def _forget(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)
