"""What Linux says about processes: states, sessions, descendants; and the calls that tie lives together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MADV_COLLAPSE = 25
_HUGE = 2 << 20

_libc = ctypes.CDLL(None, use_errno=True)

#: What the state letters of ``/proc/PID/stat`` mean, where the reader should know.
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible call",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "dead, not reaped",
}


def die_with_parent(sig: int) -> None:
    """Have the kernel send ``sig`` to this process when the thread that made it ends; 0 takes that back."""
    _prctl(_PR_SET_PDEATHSIG, sig)


def become_subreaper() -> None:
    """Adopt descendants whose parents die, so that they can be found and ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def use_huge_pages() -> None:
    """Gather this process's private memory in huge pages, where the kernel (6.1 and later) can.

    A fork copies a table entry for every page: of 280 MiB, 10 ms in small pages and 2 ms in huge ones.
    """
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as file:
        maps = [line.split() for line in file]
    for fields in maps:
        if fields[1] == "rw-p" and fields[5:] in ([], ["[heap]"]):
            start, end = (int(number, 16) for number in fields[0].split("-"))
            start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
            if start < end:
                _libc.madvise(start, end - start, _MADV_COLLAPSE)  # on failure the pages stay as they are


class Stat(NamedTuple):
    """One process as ``/proc`` shows it."""

    pid: int
    state: str
    parent: int
    session: int


def stat(pid: int) -> Stat | None:
    """The process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command before it may hold blanks and brackets
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]))


def everything() -> Iterator[Stat]:
    """All processes there are, without zombies."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None and found.state != "Z":
                yield found


def descendants(pid: int) -> list[Stat]:
    """Children, their children and so on of ``pid``, without zombies."""
    below: dict[int, list[Stat]] = {}
    for process in everything():
        below.setdefault(process.parent, []).append(process)
    found: list[Stat] = []
    todo = [pid]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += [child.pid for child in children]
    return found


def kill_quietly(pid: int, sig: int = signal.SIGKILL) -> None:
    """Send a signal; a process that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sig)


def kill_where(wanted: Callable[[Stat], bool]) -> None:
    """Kill every process that ``wanted`` picks, again and again until there is none (they may fork meanwhile).

    A process in an uninterruptible call cannot be killed; it is signalled and not waited for.
    """
    signalled: set[int] = set()
    while True:
        found = {process.pid for process in everything() if wanted(process)} - signalled
        if not found:
            return
        for pid in found:
            kill_quietly(pid)
        signalled |= found


def how_it_ended(status: int) -> str:
    """A wait status in words: ``signal 9`` or ``exit 3``."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit {code}"


def signal_name(how: str) -> str:
    """``signal 9`` with its name behind it; other text unchanged."""
    kind, _, number = how.partition(" ")
    if kind != "signal":
        return how
    with contextlib.suppress(ValueError):
        return f"{how} ({signal.Signals(int(number)).name})"
    return how
