"""What became of a run: per rank its value or its failure, how its process ended, its output and its stack."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass, field
from typing import Any

from harness import errors
from harness.model.certificate import Certificate
from harness.world.tasks import dumps


@dataclass(frozen=True)
class Failure:
    """Why a rank's task failed. ``type`` is an exception's qualified name, or a cause such as ``died``.

    ``exception`` is the exception itself where it could be carried over.
    """

    type: str
    message: str
    traceback: str = ""
    exception: BaseException | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that ``error`` is, as raised in a task."""
        name = type(error).__qualname__
        module = type(error).__module__
        message = str(error)
        if isinstance(error, SystemExit):
            message = f"called sys.exit({'' if error.code is None else repr(error.code)})"
        text = "".join(traceback.format_exception(error))
        return cls(name if module == "builtins" else f"{module}.{name}", message, text, error)

    def dump(self) -> bytes:
        """A pickle of this; without the exception object if that does not survive pickling."""
        try:
            payload = dumps(self)
            pickle.loads(payload)
        except Exception:  # noqa: BLE001 - an exception class may do anything when copied
            return pickle.dumps(Failure(self.type, self.message, self.traceback))
        return payload

    def to_json(self) -> dict[str, str]:
        return {"type": self.type, "message": self.message, "traceback": self.traceback}


@dataclass
class RankOutcome:
    """One rank's part of a run. ``exit`` is how its process ended (``signal 9``, ``exit 0``), None if it lives."""

    rank: int
    ok: bool = False
    value: Any = None
    error: Failure | None = None
    exit: str | None = None
    stdout: str = ""
    stderr: str = ""
    stack: str = ""


@dataclass
class Run:
    """What became of a task on all ranks.

    ``culprits`` are the ranks whose failure came first; the others were released or stopped because of them.
    ``tainted`` says that the world cannot serve another run. ``evidence_error`` says why evidence is incomplete.
    """

    ranks: list[RankOutcome]
    certificate: Certificate | None = None
    seconds: float = 0.0
    timed_out: bool = False
    tainted: bool = False
    culprits: tuple[int, ...] = ()
    cause: str = ""
    evidence_error: str = ""

    @property
    def ok(self) -> bool:
        """Whether every rank returned."""
        return all(outcome.ok for outcome in self.ranks)

    @property
    def values(self) -> list[Any]:
        """What each rank returned. Raises what :meth:`check` raises."""
        self.check()
        return [outcome.value for outcome in self.ranks]

    def check(self) -> None:
        """Raise the run's failure, if it has one: a verdict's error, or the culprit's own exception."""
        if self.ok:
            return
        for outcome in self._culprits_first():
            if outcome.error is None:
                continue
            if isinstance(outcome.error.exception, errors.HarnessError):
                raise outcome.error.exception
            raise errors.RankFailedError(self.text()) from outcome.error.exception
        raise errors.RankFailedError(self.text())

    def _culprits_first(self) -> list[RankOutcome]:
        return sorted(self.ranks, key=lambda outcome: outcome.rank not in self.culprits)

    def text(self) -> str:
        """The failure in words: the cause, then each failed rank with what it left."""
        lines = [self.cause] if self.cause else []
        for outcome in self._culprits_first():
            if outcome.error is not None:
                line = f"rank {outcome.rank}: {outcome.error.type}: {outcome.error.message}"
                lines += [] if line in self.cause else [line]
        return "\n".join(filter(None, [*lines, self.left_behind()]))

    def left_behind(self) -> str:
        """The tracebacks and the stderr of the ranks that failed of themselves."""
        lines = []
        for outcome in self._culprits_first():
            if outcome.error is None or outcome.rank not in self.culprits:
                continue
            for title, text in (("traceback", outcome.error.traceback), ("stderr", outcome.stderr)):
                if text.strip():
                    lines.append(f"--- rank {outcome.rank}, {title}")
                    lines += text.strip().splitlines()[-40:]
        return "\n".join(lines)
