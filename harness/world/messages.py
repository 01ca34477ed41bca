"""What travels between a rank and the supervisor, both ways.

Every message names its epoch: the supervisor counts one up for each task it hands out, and drops what still
comes of an older one (a rank may have issued more before it heard that its epoch was over). Times are
nanoseconds of ``time.monotonic_ns`` in the sender.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.model.operation import Operation


class Frame(NamedTuple):
    """One line of a Python stack, innermost first in the tuples that hold several."""

    file: str
    line: int
    function: str


# --- rank to supervisor -------------------------------------------------------------------------------------


class Issue(NamedTuple):
    """The rank issued ``ops`` (more than one only for a point-to-point batch).

    Their sequence numbers are ``seq``, ``seq + 1``, ...; they count per rank and epoch, over all threads and groups.
    """

    epoch: int
    seq: int
    thread: str
    ops: tuple[Operation, ...]
    where: tuple[Frame, ...]
    ns: int


class Wait(NamedTuple):
    """The thread now blocks until all operations ``seqs`` of its rank are complete.

    ``others`` names live Python threads of the rank that have issued nothing so far: as long as one of them
    could still issue, a part that is not issued is no proof of anything.
    """

    epoch: int
    thread: str
    seqs: tuple[int, ...]
    where: tuple[Frame, ...]
    others: tuple[str, ...]
    ns: int


class Complete(NamedTuple):
    """The transport finished the operation on this rank (for the timeline; the model has its own word)."""

    epoch: int
    seq: int
    ns: int


class ThreadEnd(NamedTuple):
    """The thread (not the rank) will issue nothing more."""

    epoch: int
    thread: str
    ns: int


class ThreadStart(NamedTuple):
    """A Python thread exists that has issued nothing so far but may (seen while another one was blocked)."""

    epoch: int
    thread: str
    ns: int


class Events(NamedTuple):
    """Several of the above in order, packed: what a rank really sends while its body runs.

    Operations and stacks are sent once an epoch and then named by number. Each record is a plain tuple that
    begins with a letter: ``("o", id, Operation)``, ``("f", id, frames)``, ``("i", seq, thread, operation ids,
    stack id, ns)``, ``("w", thread, seqs, stack id, others, ns)``, ``("s", seq, thread, operation id,
    stack id, others, ns)`` (issue and wait in one), ``("c", seq, ns)``, ``("b", thread, ns)`` (a thread began),
    ``("e", thread, ns)`` (it ended), ``("n", name, value, ns)``, ``("t", thread, to, ns)`` and
    ``("h", thread, source, stack id, ns)`` (host messages; a hear is answered by Release).
    """

    epoch: int
    records: tuple[tuple[Any, ...], ...]


class Finished(NamedTuple):
    """The task's body returned or raised: the rank issues nothing more in this epoch.

    ``payload`` is a pickle of the returned value, or of the failure.
    """

    epoch: int
    ok: bool
    payload: bytes
    ns: int


class Note(NamedTuple):
    """Anything a body or a backend wants kept in the evidence (JSON-able)."""

    epoch: int
    name: str
    value: Any
    ns: int


# --- supervisor to rank -------------------------------------------------------------------------------------


class Task(NamedTuple):
    """Run this. ``payload`` is a cloudpickle of ``(function, args)``; ``options`` are plain values for the rank."""

    epoch: int
    payload: bytes
    options: dict[str, Any]


class Grant(NamedTuple):
    """These operations of the rank may go to the transport now, in this order."""

    epoch: int
    seqs: tuple[int, ...]


class Sent(NamedTuple):
    """These sends count as complete although their recv has not started (buffered models): the host goes on."""

    epoch: int
    seqs: tuple[int, ...]


class Probe(NamedTuple):
    """Send at once whatever is held back (an unsupervised engine seems stuck, and a late event may say otherwise)."""

    epoch: int


class Release(NamedTuple):
    """The thread may go on from a host wait that is no operation's completion (a first use, a host message)."""

    epoch: int
    thread: str


class Stop(NamedTuple):
    """The epoch is over: every blocked call raises, and so does every later one. ``error`` is a pickled exception."""

    epoch: int
    error: bytes


class Exit(NamedTuple):
    """End the process."""


# --- outside any epoch --------------------------------------------------------------------------------------


class Started(NamedTuple):
    """Rank to supervisor, once: it is part of the world and takes tasks; or it is not, and ``error`` is why."""

    rank: int
    pid: int
    error: str
