"""Proof of an outcome: who waits for whom, on what, and at which line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: ``(file, line, function)``, innermost first.
Where = tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One link of a wait cycle: others need something of ``rank``, and it is held up by something else.

    ``needs`` is what others need of the rank. ``how`` says why it doesn't come: ``queued`` (issued, but
    behind ``behind`` in the rank's own queue), ``blocked`` (not issued: its thread stands at ``behind``),
    ``hears`` (its thread waits for a host message), ``first_use`` (its thread waits for every member to use
    the group once). ``where`` is the line of the held-up call.
    """

    rank: int
    thread: str
    needs: str
    how: str
    behind: str
    where: Where = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """A part that has not started: whose, and what that rank does instead."""

    rank: int
    instead: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """A thread that cannot go on: what it stands at, where, and for each such operation who has not come."""

    rank: int
    thread: str
    stands_at: tuple[str, ...]
    absent: tuple[Absent, ...]
    where: Where = ()


@dataclass(frozen=True, slots=True)
class Clash:
    """Two started parts of one instance that differ."""

    instance: str
    left_rank: int
    left: str
    right_rank: int
    right: str
    left_where: Where = ()
    right_where: Where = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why ``outcome`` is certain under ``model``.

    ``deadlock`` has a ``cycle``; ``mismatch`` has ``clashes``; ``missing`` has only ``blocked`` threads and
    ``unfinished`` operations, whose absent ranks have ended.
    """

    outcome: str
    model: str
    cycle: tuple[Step, ...] = ()
    clashes: tuple[Clash, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    unfinished: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dictionaries, strings and numbers."""
        return {
            "outcome": self.outcome,
            "model": self.model,
            "cycle": [_plain(step) for step in self.cycle],
            "clashes": [_plain(clash) for clash in self.clashes],
            "blocked": [_plain(b) | {"absent": [_plain(a) for a in b.absent]} for b in self.blocked],
            "unfinished": list(self.unfinished),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The certificate that :meth:`to_json` wrote."""
        return cls(
            outcome=data["outcome"],
            model=data["model"],
            cycle=tuple(Step(**(s | {"where": _where(s["where"])})) for s in data["cycle"]),
            clashes=tuple(
                Clash(**(c | {"left_where": _where(c["left_where"]), "right_where": _where(c["right_where"])}))
                for c in data["clashes"]
            ),
            blocked=tuple(
                Blocked(
                    rank=b["rank"],
                    thread=b["thread"],
                    stands_at=tuple(b["stands_at"]),
                    absent=tuple(Absent(**a) for a in b["absent"]),
                    where=_where(b["where"]),
                )
                for b in data["blocked"]
            ),
            unfinished=tuple(data["unfinished"]),
        )


def _plain(record: Any) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in record.__slots__}
    for name, value in values.items():
        if name.endswith("where"):
            values[name] = [list(frame) for frame in value]
        elif isinstance(value, tuple):
            values[name] = list(value)
    return values


def _where(frames: Any) -> Where:
    return tuple((str(file), int(line), str(function)) for file, line, function in frames)
