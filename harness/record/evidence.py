"""Evidence on disk: one file of JSON lines a cell, each line flushed as it is written, so that a crash loses nothing.

The first line says what ran and on what (``cell``); then come the world, every event, proofs, each rank's outcome and
the end; see `harness.record.lines`. What is concluded from it is `harness.record.verdict`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import InputError
from harness.record import lines
from harness.record.lines import Line

#: The version of the lines' form; it changes when a reader of the old form would misread the new one.
SCHEMA = 1


class Evidence:
    """Writes one cell's file; a context manager. An existing file is replaced."""

    def __init__(
        self, path: Path, cell: Mapping[str, Any], versions: Mapping[str, str], hardware: Mapping[str, Any]
    ) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self.write(
            {
                "type": "cell",
                "schema": SCHEMA,
                "cell": dict(cell),
                "versions": dict(versions),
                "hardware": dict(hardware),
            }
        )

    def write(self, line: Line) -> None:
        """Append one line and flush it. Values that JSON doesn't know are written as their text."""
        self._file.write(lines.text(line) + "\n")

    def write_text(self, rows: str) -> None:
        """Append lines that are JSON text already, each with its end, and flush them."""
        self._file.write(rows)

    def close(self) -> None:
        """Close the file; harmless if closed already."""
        self._file.close()

    def __enter__(self) -> Evidence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> list[Line]:
    """All lines of a file. A last line that breaks off is left out: its writer was killed.

    Raises InputError naming file and line for anything else that is no evidence.
    """
    return list(_lines(path))


def _lines(path: Path) -> Iterator[Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            line = json.loads(row)
        except ValueError:
            if number == len(rows):
                return
            raise InputError("is no JSON", file=path, line=number) from None
        if not isinstance(line, dict) or not isinstance(line.get("type"), str):
            raise InputError("is no line of evidence: an object with a `type` is expected", file=path, line=number)
        if line["type"] == "cell" and line.get("schema") != SCHEMA:
            raise InputError(f"has schema {line.get('schema')!r}; this version reads {SCHEMA}", file=path, line=number)
        yield line
