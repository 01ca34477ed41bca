"""What is kept of one rank's dump: a row of numbers an entry, the different strings once, and no frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import InputError
from harness.record.flight import plain
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

#: Fewer bytes than this in all, and compiling costs more than it saves.
SMALL = 4_000_000
#: The most bytes of a JSON dump: it has no frames, and takes twenty times its size once read.
JSON_BYTES = 1 << 26
_LARGE = 1 << 60


@dataclass(frozen=True)
class Table:
    """``rows[entry, field]`` in the order of `fields.FIELDS`; strings are numbers of ``texts``, `ABSENT` is -1.

    ``config`` maps the names of groups to (description, ranks or None where the recorder doesn't say);
    ``enqueued`` maps the numbers of groups to the last collective the recorder saw issued.
    """

    file: str
    rows: Any
    texts: tuple[str, ...]
    config: dict[str, tuple[str, tuple[int, ...] | None]]
    enqueued: dict[int, int]
    version: str


def table_of(content: Any, file: str) -> Table:
    """The table of a dump that was read whole. Raises InputError where it isn't one."""
    head = _mapping(content, "the dump", file)
    entries = head.get("entries") or []
    if not isinstance(entries, list | tuple):
        raise InputError("entries: a list is expected", file=file)
    texts: dict[str, int] = {}
    rows = np.full((len(entries), len(FIELDS)), ABSENT, np.int64)
    for number, record in enumerate(entries):
        _fill(rows[number], _mapping(record, f"entry {number}", file), texts)
        if rows[number, NAME] < 0 or rows[number, GROUP] < 0:
            raise InputError(f"entry {number}: profiling_name and process_group (name, desc) are needed", file=file)
    return Table(file, rows, tuple(texts), *configuration(head, file))


def configuration(
    head: Mapping[str, Any], file: str
) -> tuple[dict[str, tuple[str, tuple[int, ...] | None]], dict[int, int], str]:
    """Groups, last enqueued collectives and version, from what a dump holds beside its entries."""
    version = str(head.get("version", ""))
    if not version.startswith("2."):
        raise InputError(f"version {version[:20]!r}: this reads flight-recorder dumps of format 2.x", file=file)
    groups = {}
    for name, group in _mapping(head.get("pg_config") or {}, "pg_config", file).items():
        fields = _mapping(group, f"pg_config {name!r}", file)
        groups[str(name)] = (str(fields.get("desc", "")), _ranks(fields.get("ranks"), file))
    enqueued = {}
    for number, status in _mapping(head.get("pg_status") or {}, "pg_status", file).items():
        last = status.get("last_enqueued_collective") if isinstance(status, dict) else None
        if isinstance(last, int) and str(number).isdecimal() and len(str(number)) < 10:
            enqueued[int(number)] = last
    return groups, enqueued, version


def _mapping(value: Any, what: str, file: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what}: a mapping is expected, not {type(value).__name__}", file=file)
    return value


def _ranks(value: Any, file: str) -> tuple[int, ...] | None:
    """``"[0, 1]"`` or a list; None for gloo's empty one."""
    if value is None:
        return None
    ranks = _rank_list(value if isinstance(value, str) else json.dumps(value))
    if ranks is None:
        raise InputError(f"pg_config: ranks {str(value)[:40]!r} is no list of ranks", file=file)
    return ranks or None


@lru_cache(maxsize=8192)
def _rank_list(text: str) -> tuple[int, ...] | None:
    """The ranks a text lists, None if it doesn't. Every rank of a large job repeats the same few lists."""
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or not all(type(r) is int and 0 <= r < 1 << 24 for r in value):
        return None
    return tuple(value)


def _fill(row: Any, record: Mapping[str, Any], texts: dict[str, int]) -> None:
    def text(value: Any) -> int:
        return texts.setdefault(value, len(texts)) if isinstance(value, str) else ABSENT

    for column, field in enumerate(FIELDS):
        value = record.get(field)
        if column in (NAME, STATE):
            row[column] = text(value)
        elif column == GROUP:
            if isinstance(value, list | tuple) and len(value) == 2:
                row[GROUP], row[DESC] = text(value[0]), text(value[1])
        elif column in (IN_N, OUT_N):
            row[column] = elements(value)
        elif column in (IN_TYPE, OUT_TYPE):
            row[column] = text(value[0]) if isinstance(value, list | tuple) and value else ABSENT
        elif column != DESC and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            row[column] = value
    if row[SEQ] == ABSENT and type(record.get("seq_id")) is int:
        row[SEQ] = record["seq_id"]


def elements(shapes: Any) -> int:
    """Elements of all tensors of ``[[2, 4], ...]`` together; `ABSENT` if it is something else."""
    if not isinstance(shapes, list | tuple):
        return ABSENT
    total = 0
    for shape in shapes:
        if not isinstance(shape, list | tuple):
            return ABSENT
        product = 1
        for size in shape:
            if type(size) is not int or size < 0 or (size and product > _LARGE // size):
                return ABSENT
            product *= size
        total = min(total + product, _LARGE)
    return total


def read_content(data: bytes, file: str) -> Any:
    """A whole dump as plain values, pickle or JSON. Raises InputError, also for what is hostile."""
    if data[:64].lstrip()[:1] in (b"{", b"["):
        if len(data) > JSON_BYTES:
            raise InputError(f"JSON of more than {JSON_BYTES >> 20} MiB, which no dump is", file=file)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not readable JSON: {str(error)[:200]}", file=file) from None
    return plain.Reader(data, file).read()


def read_bytes(path: Path) -> bytes:
    """The file's bytes, if it is one and not absurdly large."""
    try:
        if path.stat().st_size > plain.BYTES:
            raise InputError(f"larger than {plain.BYTES >> 20} MiB, which no dump is", file=path)
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
