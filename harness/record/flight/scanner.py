"""Dumps by the compiled reader: `scan` over one file after the other, its arrays kept and grown to the largest."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.record.flight.plain import VALUES
from harness.record.flight.scan import (
    DICT,
    DONE,
    ENTRIES,
    FALSE,
    HEAD,
    INTEGER,
    LIST,
    OTHER,
    TEXT,
    TEXTS,
    TRUE,
    TUPLE,
    WORDS,
    begin,
    columns,
    find,
    scan,
)
from harness.record.flight.table import Table, configuration


class Scratch:
    """The scanner's arrays, kept from file to file and grown to the largest."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}

    def get(self, name: str, size: int, dtype: Any) -> Any:
        """An array of at least ``size``; untouched pages cost nothing."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = self._arrays[name] = np.empty(size, dtype)
        return array


class Scanner:
    """Reads pickles one after the other into tables, its arrays kept from file to file."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._words = "".join(WORDS).encode()
        self._places = np.cumsum([0, *(len(word) for word in WORDS)])

    def table(self, data: bytes, file: str) -> Table | None:
        """The table of a pickle; None where `plain` should look, since something is out of the ordinary."""
        read = self._read(data)
        if read is None:
            return None
        buffer, root, tape, pool, texts, table, entries = read
        rows = np.empty((tape[2][entries], ENTRIES), np.int64)
        if columns(buffer, entries, tape, pool, texts, table, rows) != DONE:
            return None
        head = {}
        for word in HEAD:
            node = find(buffer, root, WORDS.index(word), tape, pool, texts, table)
            head[word] = _value(buffer, node, tape, pool) if node >= 0 else None
        strings = tuple(_text(buffer, start, length) for start, length, _ in texts[: texts[0, 2]])
        return Table(file, rows, strings, *configuration(head, file))

    def frames(self, data: bytes, entries: Sequence[int]) -> list[Any] | None:
        """The frames of some entries of a pickle that `table` has read."""
        read = self._read(data)
        if read is None:
            return None
        buffer, _, tape, pool, texts, table, listed = read
        found = []
        for entry in entries:
            node = find(buffer, pool[tape[1][listed] + entry], WORDS.index("frames"), tape, pool, texts, table)
            found.append(_value(buffer, node, tape, pool) if node >= 0 else None)
        return found

    def _read(self, data: bytes) -> tuple[Any, ...] | None:
        """Scan a pickle and find its list of entries."""
        size = min(len(data), VALUES) + len(WORDS) + 2
        get = self._scratch.get
        buffer = get("data", len(self._words) + len(data), np.uint8)[: len(self._words) + len(data)]
        buffer[: len(self._words)] = np.frombuffer(self._words, np.uint8)
        buffer[len(self._words) :] = np.frombuffer(data, np.uint8)
        tape = (
            get("kind", size, np.uint8),
            get("a", size, np.int64),
            get("b", size, np.int64),
            get("cap", size, np.int64),
            get("sid", size, np.int32),
        )
        pool = get("pool", 4 * size, np.int32)
        memo = get("memo", size, np.int32)[: min(len(data), VALUES) + 1]
        status, root, nodes = scan(
            buffer, len(self._words), tape, pool, get("stack", size, np.int32), get("marks", size, np.int32), memo
        )
        if status != DONE or tape[0][root] != DICT or nodes + len(WORDS) >= size:
            return None
        texts, table = get("texts", TEXTS * 3, np.int64).reshape(TEXTS, 3), get("table", 4 * TEXTS, np.int32)
        begin(buffer, self._places, nodes, tape, texts, table)
        entries = find(buffer, root, WORDS.index("entries"), tape, pool, texts, table)
        if entries < 0 or tape[0][entries] not in (LIST, TUPLE):
            return None
        return buffer, root, tape, pool, texts, table, entries


def _text(data: Any, start: int, length: int) -> str:
    return bytes(data[start : start + length]).decode("utf-8", "replace")


def _value(data: Any, node: int, tape: Any, pool: Any, depth: int = 4) -> Any:
    """A small part of the tape as plain values, no deeper than a dump's head goes."""
    kind, a, b, _, _ = tape
    what, first, count = kind[node], int(a[node]), int(b[node])
    if what == TEXT:
        return _text(data, first, count)
    if what == INTEGER:
        return first
    if what == OTHER:
        return struct.unpack(">d", bytes(data[first : first + 8]))[0]
    if what in (LIST, TUPLE, DICT) and depth:
        items = [_value(data, pool[first + i], tape, pool, depth - 1) for i in range(count)]
        if what == DICT:
            keys = items[::2]
            return dict(zip(keys, items[1::2], strict=True)) if all(type(k) in (str, int) for k in keys) else None
        return items
    return {TRUE: True, FALSE: False}.get(what)
