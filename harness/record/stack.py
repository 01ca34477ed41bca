"""Cheap Python stacks: where in whose code an operation was issued."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

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
        ("torch", "overrides.py"),
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
_OWN = tuple(
    os.path.join(_HARNESS, room) + os.sep for room in ("backends", "programs", "record", "script", "variants", "world")
)

#: Below this, a stack is the harness's own to the end.
_BOTTOM = os.path.join(_HARNESS, "world", "rank.py")

#: What becomes of a code object's frames, by its id; the object is held, so that no other one gets its id.
_KEPT, _LEFT_OUT, _END = range(3)
_fates: dict[int, int] = {}
_codes: dict[int, CodeType] = {}


class Stacks:
    """Gives each different stack of an epoch a number, so that it travels once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}

    def here(self, depth: int) -> tuple[int, tuple[Frame, ...] | None]:
        """The number of the caller's stack, and its frames if it is new. ``depth`` innermost frames are left out."""
        frame: FrameType | None = sys._getframe(depth)
        key: list[int] = []
        fates = _fates
        for _ in range(LOOK):
            if frame is None:
                break
            code = frame.f_code
            fate = fates.get(id(code))
            if fate is None:
                fate = _decide(code)
            if fate == _KEPT:
                key += id(code), frame.f_lasti
                if len(key) == 2 * KEEP:
                    break
            elif fate == _END:
                break
            frame = frame.f_back
        known = self._numbers.get(stack := tuple(key))
        if known is not None:
            return known, None
        number = self._numbers[stack] = len(self._numbers) + 1
        return number, _frames(key)


def _decide(code: CodeType) -> int:
    file = code.co_filename
    if file == _BOTTOM:
        fate = _END
    elif file.startswith(_OWN) or file.startswith("<frozen") or file.endswith(_SKIPPED):
        fate = _LEFT_OUT
    else:
        fate = _KEPT
    _codes[id(code)] = code
    _fates[id(code)] = fate
    return fate


def _frames(key: list[int]) -> tuple[Frame, ...]:
    frames = []
    for number, lasti in zip(key[::2], key[1::2], strict=True):
        code = _codes[number]
        frames.append(Frame(code.co_filename, _line_at(code, lasti), code.co_name))
    return tuple(frames)


def _line_at(code: CodeType, lasti: int) -> int:
    for start, stop, line in code.co_lines():
        if start <= lasti < stop and line is not None:
            return line
    return code.co_firstlineno
