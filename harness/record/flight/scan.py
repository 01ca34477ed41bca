"""The same reading as ``plain``, compiled: a pickle's bytes straight into arrays, a hundred times as fast.

Values become nodes of a tape: ``kind``, and ``a`` and ``b`` (a string's place and length, an integer, a container's
first child in ``pool`` and their number). Frames stay on the tape and are dropped with it. Anything out of the ordinary
ends the scan with a status other than `DONE`; `plain.Reader` then reads the file and says what is wrong, or reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.model.fast import compiled
from harness.record.flight.fields import (
    ABSENT,
    DESC,
    FIELDS,
    GROUP,
    IN_N,
    IN_TYPE,
    NAME,
    OUT_N,
    OUT_TYPE,
    SEQ,
    STATE,
)

DONE, REFUSED = 0, 1
NONE, FALSE, TRUE, INTEGER, OTHER, TEXT, LIST, DICT, TUPLE = range(9)  # OTHER: a float

ENTRIES = len(FIELDS)
#: Known strings, interned before any other: a key's number is its column. Format 2.0 called the sequence ``seq_id``.
HEAD = ("pg_config", "pg_status", "version")
WORDS = (*FIELDS, "entries", "frames", "seq_id", *HEAD)
SEQ_ID = WORDS.index("seq_id")
#: The most different operation, group and type names of one file.
TEXTS = 4096
_LARGE = 1 << 60


@compiled
def scan(data: Any, begin: int, tape: Any, pool: Any, stack: Any, marks: Any, memo: Any) -> Any:
    """Read one pickle from ``data[begin:]``; returns its status, its value's node, and the number of nodes."""
    kind, a, b, cap, sid = tape
    at, size, nodes, depth, marked, used, stored = begin, len(data), 0, 0, 0, 0, 0
    value: Any  # machine integers, which wrap
    limit = len(memo)
    for i in range(limit):
        memo[i] = -1
    refused = (REFUSED, 0, 0)
    while at < size:
        code = data[at]
        at += 1
        if nodes + 1 >= len(kind) or depth + 2 >= len(stack) or marked + 1 >= len(marks):
            return refused
        floor = marks[marked - 1] if marked else 0
        push = -1
        if code == 0x4B or code == 0x4D or code == 0x4A or code == 0x8A:  # BININT1, BININT2, BININT, LONG1
            width = 1 if code == 0x4B else 2 if code == 0x4D else 4
            if code == 0x8A:
                if at >= size:
                    return refused
                width = data[at]
                at += 1
            if at + width > size or width > 8:
                return refused
            value = np.int64(0)
            for i in range(width):
                value |= np.int64(data[at + i]) << np.int64(8 * i)
            if (code == 0x4A or code == 0x8A) and 0 < width < 8 and data[at + width - 1] & 0x80:
                value -= np.int64(1) << np.int64(8 * width)
            at += width
            push, a[nodes] = INTEGER, value
        elif code == 0x58 or code == 0x8C or code == 0x8D:  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
            width = 4 if code == 0x58 else 1 if code == 0x8C else 8
            if at + width > size:
                return refused
            length: Any = np.int64(0)
            for i in range(width):
                length |= np.int64(data[at + i]) << np.int64(8 * i)
            at += width
            if length < 0 or length > size - at:
                return refused
            push, a[nodes], b[nodes] = TEXT, at, length
            at += length
        elif code == 0x71 or code == 0x72 or code == 0x94:  # BINPUT, LONG_BINPUT, MEMOIZE
            index: Any = stored
            if code == 0x71:
                if at >= size:
                    return refused
                index = np.int64(data[at])
                at += 1
            elif code == 0x72:
                if at + 4 > size:
                    return refused
                index = (
                    np.int64(data[at])
                    | np.int64(data[at + 1]) << 8
                    | np.int64(data[at + 2]) << 16
                    | np.int64(data[at + 3]) << 24
                )
                at += 4
            if index >= limit or depth <= floor:
                return refused
            stored += memo[index] < 0
            memo[index] = stack[depth - 1]
        elif code == 0x68 or code == 0x6A:  # BINGET, LONG_BINGET
            width = 1 if code == 0x68 else 4
            if at + width > size:
                return refused
            index = np.int64(0)
            for i in range(width):
                index |= np.int64(data[at + i]) << np.int64(8 * i)
            at += width
            if index >= limit or memo[index] < 0:
                return refused
            stack[depth] = memo[index]
            depth += 1
        elif code == 0x28:  # MARK
            marks[marked] = depth
            marked += 1
        elif code == 0x5D or code == 0x7D or code == 0x29:  # EMPTY_LIST, EMPTY_DICT, EMPTY_TUPLE
            push = LIST if code == 0x5D else DICT if code == 0x7D else TUPLE
            a[nodes], b[nodes], cap[nodes] = used, 0, 0
        elif code == 0x61 or code == 0x65 or code == 0x73 or code == 0x75:  # APPEND, APPENDS, SETITEM, SETITEMS
            if code == 0x61 or code == 0x73:
                first = depth - (1 if code == 0x61 else 2)
                if first < floor:
                    return refused
            else:
                if not marked:
                    return refused
                first = floor
                marked -= 1
                floor = marks[marked - 1] if marked else 0
            if first <= floor:
                return refused
            target, count = stack[first - 1], depth - first
            wanted = LIST if code == 0x61 or code == 0x65 else DICT
            if kind[target] != wanted or (wanted == DICT and count & 1):
                return refused
            have = b[target]
            if have + count > cap[target]:
                room = have + count if have == 0 else 2 * (have + count)
                if used + room > len(pool):
                    return refused
                for i in range(have):
                    pool[used + i] = pool[a[target] + i]
                a[target], cap[target] = used, room
                used += room
            for i in range(count):
                if (
                    wanted == DICT
                    and i % 2 == 0
                    and kind[stack[first + i]] != TEXT
                    and kind[stack[first + i]] != INTEGER
                ):
                    return refused
                pool[a[target] + have + i] = stack[first + i]
            b[target] = have + count
            depth = first
        elif code == 0x85 or code == 0x86 or code == 0x87 or code == 0x74:  # TUPLE1, TUPLE2, TUPLE3, TUPLE
            if code == 0x74:
                if not marked:
                    return refused
                first = floor
                marked -= 1
            else:
                first = depth - (int(code) - 0x84)
                if first < floor:
                    return refused
            count = depth - first
            if used + count > len(pool):
                return refused
            a[nodes], b[nodes], cap[nodes] = used, count, count
            for i in range(count):
                pool[used + i] = stack[first + i]
            used += count
            depth = first
            push = TUPLE
        elif code == 0x4E or code == 0x88 or code == 0x89:  # NONE, NEWTRUE, NEWFALSE
            push = NONE if code == 0x4E else TRUE if code == 0x88 else FALSE
        elif code == 0x47:  # BINFLOAT
            if at + 8 > size:
                return refused
            push, a[nodes] = OTHER, at
            at += 8
        elif code == 0x80:  # PROTO
            if at >= size or data[at] > 5:
                return refused
            at += 1
        elif code == 0x95:  # FRAME
            if at + 8 > size:
                return refused
            at += 8
        elif code == 0x2E:  # STOP
            return (DONE, stack[depth - 1], nodes) if depth > floor else refused
        else:
            return refused
        if push >= 0:
            kind[nodes] = push
            sid[nodes] = -1
            stack[depth] = nodes
            depth += 1
            nodes += 1
    return refused


@compiled
def intern(data: Any, node: int, tape: Any, texts: Any, table: Any) -> Any:
    """The number of a string among the file's different ones, in order of appearance; -1 if it is none or too many."""
    kind, a, b, _, sid = tape
    if kind[node] != TEXT:
        return -1
    if sid[node] >= 0:
        return sid[node]
    start, length = a[node], b[node]
    code = np.uint64(14695981039346656037)
    for i in range(length):
        code = (code ^ np.uint64(data[start + i])) * np.uint64(1099511628211)
    slot = np.int64((code ^ (code >> np.uint64(32))) & np.uint64(len(table) - 1))
    while table[slot] >= 0:
        other = table[slot]
        if texts[other, 1] == length:
            same = True
            for i in range(length):
                if data[texts[other, 0] + i] != data[start + i]:
                    same = False
                    break
            if same:
                sid[node] = other
                return other
        slot = (slot + 1) & (len(table) - 1)
    number = texts[0, 2]
    if number >= TEXTS:
        return -1
    texts[number, 0], texts[number, 1] = start, length
    texts[0, 2] = number + 1
    table[slot] = number
    sid[node] = number
    return number


@compiled
def begin(data: Any, places: Any, nodes: int, tape: Any, texts: Any, table: Any) -> None:
    """Empty the tables of strings and intern the known words, which lie before the pickle's bytes."""
    kind, a, b, _, sid = tape
    texts[0, 2] = 0
    table[:] = -1
    for word in range(len(places) - 1):
        kind[nodes + word], sid[nodes + word] = TEXT, -1
        a[nodes + word], b[nodes + word] = places[word], places[word + 1] - places[word]
        intern(data, nodes + word, tape, texts, table)


@compiled
def find(data: Any, mapping: int, word: int, tape: Any, pool: Any, texts: Any, table: Any) -> Any:
    """The node of a mapping's value; -1 if it has none."""
    _, a, b, _, _ = tape
    found = -1
    for i in range(0, b[mapping], 2):
        if intern(data, pool[a[mapping] + i], tape, texts, table) == word:
            found = pool[a[mapping] + i + 1]
    return found


@compiled
def elements(node: int, tape: Any, pool: Any) -> Any:
    """Elements of all tensors of a ``[[2, 4], ...]`` node; `ABSENT` if it is something else."""
    kind, a, b, _, _ = tape
    if kind[node] != LIST and kind[node] != TUPLE:
        return ABSENT
    total: Any = np.int64(0)
    for i in range(b[node]):
        shape = pool[a[node] + i]
        if kind[shape] != LIST and kind[shape] != TUPLE:
            return ABSENT
        product: Any = np.int64(1)
        for j in range(b[shape]):
            size = pool[a[shape] + j]
            if kind[size] != INTEGER or a[size] < 0:
                return ABSENT
            if a[size] and product > _LARGE // a[size]:
                return ABSENT
            product *= a[size]
        total = min(total + product, _LARGE)
    return total


@compiled
def columns(data: Any, entries: int, tape: Any, pool: Any, texts: Any, table: Any, out: Any) -> int:
    """Fill ``out[entry, field]`` from the list of entries; returns `DONE`, or `REFUSED` where an entry is odd."""
    # Handing the arrays to a function costs more than what it does: known strings are looked up here.
    kind, a, b, _, sid = tape
    for e in range(b[entries]):
        entry = pool[a[entries] + e]
        if kind[entry] != DICT:
            return REFUSED
        out[e, :] = ABSENT
        older = np.int64(ABSENT)
        for i in range(a[entry], a[entry] + b[entry], 2):
            node, value = pool[i], pool[i + 1]
            key = sid[node] if kind[node] == TEXT and sid[node] >= 0 else intern(data, node, tape, texts, table)
            if key == SEQ_ID and kind[value] == INTEGER:
                older = a[value]
            if key < 0 or key >= ENTRIES or key == DESC:
                continue
            out[e, key] = ABSENT  # a key given twice holds what it was given last
            pair = kind[value] == TUPLE or kind[value] == LIST
            if key in (IN_N, OUT_N):
                out[e, key] = elements(value, tape, pool)
            elif key in (NAME, STATE, GROUP, IN_TYPE, OUT_TYPE):
                if key == GROUP:
                    out[e, DESC] = ABSENT
                    if not pair or b[value] != 2:
                        continue
                    node = pool[a[value] + 1]
                    known = kind[node] == TEXT and sid[node] >= 0
                    out[e, DESC] = sid[node] if known else intern(data, node, tape, texts, table)
                    value = pool[a[value]]
                elif key in (IN_TYPE, OUT_TYPE):
                    if not pair or b[value] == 0:
                        continue
                    value = pool[a[value]]
                known = kind[value] == TEXT and sid[value] >= 0
                out[e, key] = sid[value] if known else intern(data, value, tape, texts, table)
            elif kind[value] == TRUE or kind[value] == FALSE:
                out[e, key] = kind[value] == TRUE
            elif kind[value] == INTEGER:
                out[e, key] = a[value]
        if out[e, SEQ] == ABSENT:
            out[e, SEQ] = older
        if out[e, NAME] < 0 or out[e, GROUP] < 0:
            return REFUSED
    return DONE
