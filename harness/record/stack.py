"""Cheap Python stacks: where in whose code an operation was issued."""

from __future__ import annotations

import os
import sys
from types import CodeType

from harness.world.messages import Frame

#: At most so many frames are kept, innermost first, of at most so many looked at.
KEEP, LOOK = 12, 60

_HARNESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Frames of these are the machinery of the call, not its cause: of torch only what stands between the caller and the
#: transport. DeepSpeed's frames stay, its communication shims apart.
_SKIPPED = tuple(
    os.path.join("", *parts)
    for parts in (
        ("torch", "distributed", "distributed_c10d.py"),
        ("torch", "distributed", "c10d_logger.py"),
        ("torch", "distributed", "_functional_collectives.py"),
        ("torch", "_ops.py"),
        ("torch", "utils", "_contextlib.py"),
        ("torch", "nn", "modules", "module.py"),
        ("deepspeed", "comm", "comm.py"),
        ("deepspeed", "comm", "torch.py"),
        ("deepspeed", "utils", "nvtx.py"),
        ("typing_extensions.py",),
        ("contextlib.py",),
        ("functools.py",),
        ("threading.py",),
        ("runpy.py",),
    )
)
_OWN = tuple(os.path.join(_HARNESS, room) + os.sep for room in ("backends", "programs", "record", "world"))

#: Whether frames of a code object are kept, by its id; the object is held, so that no other one gets its id.
_kept: dict[int, tuple[bool, CodeType]] = {}


class Stacks:
    """Gives each different stack of an epoch a number, so that it travels once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}

    def here(self, depth: int) -> tuple[int, tuple[Frame, ...] | None]:
        """The number of the caller's stack, and its frames if it is new. ``depth`` innermost frames are left out."""
        frame = sys._getframe(depth)
        key: list[int] = []
        looked = 0
        while frame is not None and looked < LOOK and len(key) < 2 * KEEP:
            code = frame.f_code
            kept = _kept.get(id(code))
            if kept is None:
                kept = _kept[id(code)] = (_keep(code), code)
            if kept[0]:
                key += id(code), frame.f_lasti
            frame = frame.f_back  # type: ignore[assignment]
            looked += 1
        known = self._numbers.get(stack := tuple(key))
        if known is not None:
            return known, None
        number = self._numbers[stack] = len(self._numbers) + 1
        return number, _frames(key)


def _keep(code: CodeType) -> bool:
    file = code.co_filename
    return not (file.startswith(_OWN) or file.startswith("<frozen") or file.endswith(_SKIPPED))


def _frames(key: list[int]) -> tuple[Frame, ...]:
    frames = []
    for number, lasti in zip(key[::2], key[1::2], strict=True):
        code = _kept[number][1]
        frames.append(Frame(code.co_filename, _line_at(code, lasti), code.co_name))
    return tuple(frames)


def _line_at(code: CodeType, lasti: int) -> int:
    for start, stop, line in code.co_lines():
        if start <= lasti < stop and line is not None:
            return line
    return code.co_firstlineno
