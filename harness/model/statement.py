"""What a thread does, statement by statement: the data that program files are read into and printed from."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.operation import Operation


@dataclass(frozen=True, slots=True)
class Call:
    """Issue ``ops`` (several: a point-to-point batch); with no ``handle`` the host also waits for them.

    ``values`` are what each call fills its input with, None where the file leaves it open.
    """

    ops: tuple[Operation, ...]
    handle: str | None = None
    values: tuple[float | None, ...] = (None,)
    batch: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waits for the latest call of its thread that is named ``handle``."""

    handle: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class DeviceSync:
    """The host waits for everything its rank has issued so far."""

    line: int = 0


@dataclass(frozen=True, slots=True)
class Tell:
    """A host message to ``rank``; never blocks."""

    rank: int
    line: int = 0


@dataclass(frozen=True, slots=True)
class Hear:
    """The host waits for the matching `Tell` of ``rank``."""

    rank: int
    line: int = 0


@dataclass(frozen=True, slots=True)
class Compute:
    """The host is busy for ``ms`` milliseconds."""

    ms: float
    line: int = 0


Statement = Call | Wait | DeviceSync | Tell | Hear | Compute
