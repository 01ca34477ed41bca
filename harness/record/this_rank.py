"""The recorder of the rank that runs in this process, and what a body may say to it."""

from __future__ import annotations

import contextlib

from harness.errors import HarnessError
from harness.record.recorder import Recorder

_current: Recorder | None = None


def install(recorder: Recorder | None) -> None:
    """Make ``recorder`` this process's."""
    global _current
    _current = recorder


def current() -> Recorder:
    """This rank's recorder. Raises HarnessError outside a rank."""
    if _current is None:
        raise HarnessError("no rank runs in this process: operations are recorded inside a world's task only")
    return _current


def label(text: str) -> contextlib.AbstractContextManager[None]:
    """``with label("expert 3"):`` names the data that the operations inside carry; nothing outside a rank."""
    return contextlib.nullcontext() if _current is None else _current.labelled(text)


def unrecorded() -> contextlib.AbstractContextManager[None]:
    """``with unrecorded():`` lets set-up go straight to the transport; nothing outside a rank."""
    return contextlib.nullcontext() if _current is None else _current.unrecorded()
