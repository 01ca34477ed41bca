"""Pickles read as data: no import, no call, no object but plain values, within bounded time and memory.

``pickle.load`` runs whatever a dump says. This reads the opcodes that plain values need and refuses the rest, so that
nothing a file holds can be executed. Each opcode costs constant time and memory, at most `VALUES` are read, and
the memo is a dictionary, so that a huge memo index costs nothing. It is slow beside ``scan`` and its oracle.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from harness.errors import InputError

#: The most opcodes read of one file: a full ring of 20 000 entries with deep stacks has about six million.
VALUES = 16_000_000
#: The most bytes of one file.
BYTES = 1 << 28
#: The longest integer, in bytes: times in nanoseconds take eight.
INTEGER = 16


class _Mark:
    """What MARK leaves on the stack."""


_MARK = _Mark()


class Reader:
    """One pickle, protocols 0 to 5. Raises InputError, naming the file, for whatever is not plain data."""

    def __init__(self, data: bytes, file: str) -> None:
        self._data, self._file = data, file
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """The value of the pickle."""
        data, size = self._data, len(self._data)
        for _ in range(VALUES):
            if self._at >= size:
                raise self._error("it ends before its end mark (truncated?)")
            code = data[self._at]
            self._at += 1
            if code == 0x2E:  # STOP
                return self._pop()
            action = _ACTIONS.get(code)
            if action is None:
                raise self._error(
                    f"opcode {bytes([code])!r} is not plain data; it could import or call, and is refused"
                )
            action(self)
        raise self._error(f"more than {VALUES} values")

    def _error(self, why: str) -> InputError:
        return InputError(f"not a readable pickle: at byte {max(0, self._at - 1)}, {why}", file=self._file)

    def _pop(self) -> Any:
        if not self._stack or (self._marks and self._marks[-1] == len(self._stack)):
            raise self._error("a value is taken from an empty stack")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        top = self._stack[-1] if self._stack else None
        if type(top) is not kind:
            raise self._error(f"a {kind.__name__} is expected")
        return top

    def _slice(self) -> list[Any]:
        if not self._marks:
            raise self._error("a mark is missing")
        mark = self._marks.pop()
        values = self._stack[mark:]
        del self._stack[mark:]
        return values

    def _take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise self._error(f"a value of {count} bytes goes beyond the end of the file")
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise self._error("a line does not end")
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _number(self, line: bytes) -> int:
        if len(line) > 40 or not line.strip().lstrip(b"+-").isdigit():
            raise self._error(f"{line[:40]!r} is not an integer")
        return int(line)

    def _long(self, count: int) -> int:
        if count > INTEGER:
            raise self._error(f"an integer of {count} bytes; at most {INTEGER} make sense")
        return int.from_bytes(self._take(count), "little", signed=True)

    def _text(self, count: int) -> str:
        return self._take(count).decode("utf-8", "replace")

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._top(dict)
        if len(pairs) % 2:
            raise self._error("a key has no value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) not in (str, int):
                raise self._error(f"a dictionary key is a {type(key).__name__}; strings and integers are accepted")
            target[key] = value

    def _remember(self, index: int) -> None:
        if not self._stack:
            raise self._error("nothing to remember")
        self._memo[index] = self._stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise self._error(f"value {index} of the memo was never stored")
        self._stack.append(self._memo[index])

    # --- opcodes --------------------------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def dup(self) -> None:
        value = self._pop()
        self._stack += [value, value]

    def append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def appends(self) -> None:
        values = self._slice()
        self._top(list).extend(values)

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def set_items(self) -> None:
        self._set_items(self._slice())

    def make_dict(self) -> None:
        pairs = self._slice()
        self._stack.append({})
        self._set_items(pairs)

    def make_tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))

    def boolean_or_integer(self) -> None:
        line = self._line()
        self._push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else self._number(line))

    def decimal(self) -> None:
        line = self._line()
        if len(line) > 40:
            raise self._error("a number of more than 40 digits")
        try:
            self._push(float(line))
        except ValueError:
            raise self._error(f"{line!r} is not a number") from None

    def quoted(self) -> None:
        line = self._line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b'"', b"'"):
            raise self._error("a string without quotes")
        self._push(line[1:-1].decode("latin-1"))


def _actions() -> dict[int, Callable[[Reader], None]]:
    """What each accepted opcode does; every other one is refused."""
    r = Reader
    named: dict[bytes, Callable[[Reader], None]] = {
        b"\x80": _protocol,
        b"\x95": lambda s: _discard(s, 8),  # FRAME: how the writer buffered
        b"(": r.mark,
        b"0": r.pop,
        b"1": lambda s: _discard_slice(s),
        b"2": r.dup,
        b"N": lambda s: s._push(None),
        b"\x88": lambda s: s._push(True),
        b"\x89": lambda s: s._push(False),
        b"K": lambda s: s._push(s._unsigned(1)),
        b"M": lambda s: s._push(s._unsigned(2)),
        b"J": lambda s: s._push(s._long(4)),
        b"\x8a": lambda s: s._push(s._long(s._unsigned(1))),
        b"\x8b": lambda s: s._push(s._long(s._unsigned(4))),
        b"G": lambda s: s._push(struct.unpack(">d", s._take(8))[0]),
        b"X": lambda s: s._push(s._text(s._unsigned(4))),
        b"\x8c": lambda s: s._push(s._text(s._unsigned(1))),
        b"\x8d": lambda s: s._push(s._text(s._unsigned(8))),
        b"]": lambda s: s._push([]),
        b"}": lambda s: s._push({}),
        b")": lambda s: s._push(()),
        b"a": r.append,
        b"e": r.appends,
        b"s": r.set_item,
        b"u": r.set_items,
        b"\x85": lambda s: s.make_tuple(1),
        b"\x86": lambda s: s.make_tuple(2),
        b"\x87": lambda s: s.make_tuple(3),
        b"t": lambda s: s._push(tuple(s._slice())),
        b"l": lambda s: s._push(s._slice()),
        b"d": r.make_dict,
        b"q": lambda s: s._remember(s._unsigned(1)),
        b"r": lambda s: s._remember(s._unsigned(4)),
        b"\x94": lambda s: s._remember(len(s._memo)),
        b"h": lambda s: s._recall(s._unsigned(1)),
        b"j": lambda s: s._recall(s._unsigned(4)),
        b"p": lambda s: s._remember(s._number(s._line())),
        b"g": lambda s: s._recall(s._number(s._line())),
        b"I": r.boolean_or_integer,
        b"L": lambda s: s._push(s._number(s._line().removesuffix(b"L"))),
        b"F": r.decimal,
        b"S": r.quoted,
        b"V": lambda s: s._push(s._line().decode("raw-unicode-escape", "replace")),
        b"U": lambda s: s._push(s._take(s._unsigned(1)).decode("latin-1")),
        b"T": lambda s: s._push(s._take(s._unsigned(4)).decode("latin-1")),
    }
    return {key[0]: action for key, action in named.items()}


def _protocol(reader: Reader) -> None:
    number = reader._unsigned(1)
    if number > 5:
        raise reader._error(f"protocol {number}; 0 to 5 are known")


def _discard(reader: Reader, count: int) -> None:
    reader._take(count)


def _discard_slice(reader: Reader) -> None:
    reader._slice()


_ACTIONS = _actions()
