"""What travels between an agent (a process that a launcher started, beside its rank) and the supervisor."""

from __future__ import annotations

from typing import NamedTuple

from harness.world.place import Place
from harness.world.spec import RankSpec


class Hello(NamedTuple):
    """Agent to supervisor, first on its connection."""

    place: Place
    host: str


class Channel(NamedTuple):
    """First on a connection that becomes the control channel of a rank."""

    tag: str
    rank: int


# --- supervisor to agent ------------------------------------------------------------------------------------


class Bind(NamedTuple):
    """Open the socket of a world's rendezvous store, which this agent's rank will serve; answered by Bound."""

    tag: str


class Launch(NamedTuple):
    """Start this agent's rank of a world, with these modules imported; answered by Launched."""

    spec: RankSpec
    preload: tuple[str, ...]


class End(NamedTuple):
    """End the process and all it started; Ended follows."""

    pid: int


class Ask(NamedTuple):
    """Have the process write its stacks; answered by Asked."""

    pid: int


class Look(NamedTuple):
    """Take the process's stacks from outside; answered by Looked."""

    pid: int
    limit: float
    native: bool


class Sync(NamedTuple):
    """Answered by Synced once all that the ranks have written is on its way."""


class Forget(NamedTuple):
    """Remove what the world left on this machine."""

    tag: str


class Leave(NamedTuple):
    """Nothing more will be asked: end with this status."""

    status: int


# --- agent to supervisor ------------------------------------------------------------------------------------


class Bound(NamedTuple):
    tag: str
    host: str
    port: int


class Launched(NamedTuple):
    """``pid`` is 0 where it failed, and ``error`` says why."""

    tag: str
    pid: int
    error: str


class Asked(NamedTuple):
    state: str


class Looked(NamedTuple):
    text: str


class Synced(NamedTuple):
    """All that was written before Sync came has been sent."""


class Output(NamedTuple):
    """Bytes of the rank's ``stdout``, ``stderr`` or ``stacks``."""

    pid: int
    stream: str
    data: bytes


class Ended(NamedTuple):
    pid: int
    how: str
