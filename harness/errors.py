"""One exception class per cause; its docstring is the diagnosis.

Those that carry a :class:`~harness.model.certificate.Certificate` survive pickling, so that the error a rank
raises is the one its caller sees.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.model.certificate import Certificate


class HarnessError(Exception):
    """Base of everything this package raises on purpose."""


class UsageError(HarnessError, ValueError):
    """What was asked for cannot be understood; the message names the place, the value and what is accepted."""


class InputError(UsageError):
    """A file cannot be used; the message begins ``file:line:`` where a line is known."""

    def __init__(self, message: str, *, file: str | Path | None = None, line: int | None = None) -> None:
        self.message, self.file, self.line = message, file, line
        place = "" if file is None else f"{file}:" if line is None else f"{file}:{line}:"
        super().__init__(f"{place} {message}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_input_error, (type(self), self.message, self.file, self.line)


def _rebuild_input_error(cls: type[InputError], message: str, file: str | Path | None, line: int | None) -> InputError:
    return cls(message, file=file, line=line)


class ProgramError(InputError):
    """A program file breaks the format; the message names the statement and what is accepted in its place."""


class BackendError(HarnessError):
    """A backend cannot be used here; the message says why and what would make it usable."""


class UnsupportedError(BackendError, NotImplementedError):
    """A backend does not offer this call; the message says what to use instead."""


class VariantError(HarnessError):
    """The code under test has moved; the message names what was looked for and where."""


# --- what happened to a world -------------------------------------------------------------------------------


class VerdictError(HarnessError):
    """Base of the errors that mean: this run ended in a verdict other than ``completes``."""

    def __init__(self, message: str, certificate: Certificate | None = None) -> None:
        super().__init__(message)
        self.certificate = certificate

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.certificate)


class DeadlockError(VerdictError):
    """Ranks wait for each other in a cycle; none of them can ever go on.

    Look at the cycle: each of its lines names a rank, what the others need of it, and what it is waiting for
    instead. Two ranks that issue the same operations in different orders are the usual cause.
    """


class MissingRankError(VerdictError):
    """A rank waits for an operation that another rank will never issue, because that rank has ended.

    Look at what the absent rank did instead: a condition that only some ranks meet is the usual cause.
    """


class MismatchError(VerdictError):
    """Calls met that cannot belong together: they differ in operation, root, number of elements or dtype.

    Look at the two histories side by side: the first difference is where the ranks parted.
    """


class SilentMixError(VerdictError):
    """Calls of equal shape met whose data do not belong together; nothing hung, the numbers are wrong."""


class WrongValuesError(VerdictError):
    """A run completed with values that differ from the expected ones."""


class StoppedError(VerdictError):
    """A run exceeded its limit and was stopped. Nothing is proved: it may have been slow, or hang elsewhere."""


class RankDiedError(VerdictError):
    """A rank's process ended before its task did; the message gives the rank, how it ended, and its stderr."""


class RankFailedError(VerdictError):
    """A rank's task raised; the message gives the rank and its traceback, and the cause is its exception."""


class WorldError(HarnessError):
    """A world could not be started, or cannot serve another run; the message says why."""
