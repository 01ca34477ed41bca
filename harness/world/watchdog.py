"""Takes the stacks of ranks that do not return, before anything is done to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from harness.world import stacks
from harness.world.loop import Loop
from harness.world.member import Member

#: How long ranks have to write their stacks themselves, and how long silence means that one is complete; seconds.
LIMIT = 0.4
SILENCE = 0.03
#: How long py-spy has for all ranks that cannot.
OUTSIDE = 1.0
#: The same where native frames are asked for: it reads the symbols of every library.
OUTSIDE_NATIVE = 20.0


def take_stacks(
    loop: Loop, members: Sequence[Member], take: Callable[[Member, Any], None], *, native: bool = False
) -> dict[int, str]:
    """The stacks of ranks, by rank. Messages that come meanwhile go to ``take``.

    The first line says in short where the rank is; then all threads, innermost frame first. Ranks that cannot write
    theirs (stopped, or in an uninterruptible call) are read from outside; with ``native`` so are all the others, for
    the frames of C and C++.
    """
    states = {member.rank: member.host.ask_stack(member.pid) for member in members}
    _wait(loop, [member for member in members if not states[member.rank]], take)
    written = {member.rank: stacks.tidy(member.stacks.text()) for member in members}
    outside = [member for member in members if native or not written[member.rank]]
    seen: dict[int, str] = {}
    for host in {id(member.host): member.host for member in outside}.values():
        pids = {member.pid: member.rank for member in outside if member.host is host}
        limit = OUTSIDE_NATIVE if native else OUTSIDE
        seen |= {pids[pid]: text for pid, text in host.native_stacks(list(pids), limit, native).items()}
    return {
        member.rank: _text(states[member.rank], written[member.rank], seen.get(member.rank, "")) for member in members
    }


def _wait(loop: Loop, members: Sequence[Member], take: Callable[[Member, Any], None]) -> None:
    """Until every stack that was asked for is there and has been silent for a moment."""
    deadline = time.monotonic() + LIMIT
    sizes = {member.rank: (member.stacks.total, 0.0) for member in members}
    while time.monotonic() < deadline:
        for member, message in loop.step(SILENCE):
            take(member, message)
        now = time.monotonic()
        for member in members:
            size, _ = sizes[member.rank]
            if member.stacks.total != size:
                sizes[member.rank] = (member.stacks.total, now)
        if all(size and now - at >= SILENCE for size, at in sizes.values()):
            return


def _text(state: str, written: str, outside: str) -> str:
    where = stacks.innermost(written) or stacks.innermost_outside(outside)
    head = ", ".join(part for part in (state, f"at {where}" if where else "") if part) or "no stack could be taken"
    return "\n".join(part for part in (head, written, outside) if part)
