"""Results of many runs, kept: JSON lines to append to, and an SQLite index beside them for questions.

A line is one cell of one run: what came of it, the run's name, its commit and time, and the versions it ran with.
The lines are what is kept; the index is made from them, follows them as they grow, and may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import InputError, UsageError
from harness.report.load import Record

SCHEMA = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS results (
    run TEXT, time TEXT, commit_id TEXT, cell TEXT, token TEXT, verdict TEXT, cell_order TEXT,
    standing TEXT, seconds REAL, allowed TEXT, versions TEXT);
CREATE INDEX IF NOT EXISTS by_cell ON results (cell, time);
CREATE INDEX IF NOT EXISTS by_run ON results (run);
"""
_COLUMNS = "run, time, commit_id, cell, token, verdict, cell_order, standing, seconds, allowed, versions"


@dataclass(frozen=True)
class Entry:
    """One cell of one run. ``time`` is UTC, ``2026-11-30T02:17:00Z``; ``allowed`` the outcomes that were expected."""

    run: str
    time: str
    commit: str
    cell: str
    token: str
    verdict: str
    order: str
    standing: str
    seconds: float
    allowed: tuple[str, ...]
    versions: dict[str, str]

    @property
    def outcome(self) -> str:
        """Verdict and order, as expectations are written."""
        return f"{self.verdict} {self.order}"


def entries(records: Iterable[Record], run: str, commit: str, when: str) -> list[Entry]:
    """A run's records as entries of the store."""
    return [
        Entry(
            run=run,
            time=when,
            commit=commit,
            cell=record.result.cell.id,
            token=record.result.cell.token,
            verdict=record.result.verdict,
            order=record.result.order,
            standing=record.result.standing,
            seconds=round(record.result.seconds, 4),
            allowed=tuple(record.result.expectation.outcomes),
            versions=dict(record.versions),
        )
        for record in records
    ]


def now() -> str:
    """The time as entries have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def commit_here(folder: Path) -> str:
    """The commit under test: what the CI says, else what git says (``+`` behind it where files differ), else ``""``."""
    if os.environ.get("GITHUB_SHA"):
        return os.environ["GITHUB_SHA"]
    try:
        head = _git(folder, "rev-parse", "HEAD")
        return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Store:
    """The results in the file ``path``; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = _index(path)
        self._follow()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._index.close()

    # --- keeping --------------------------------------------------------------------------------------------

    def add(self, new: Sequence[Entry]) -> None:
        """Append entries. Raises UsageError if one of their runs is there already."""
        for run in dict.fromkeys(entry.run for entry in new):
            if self.has_run(run):
                raise UsageError(f"{self.path}: run {run!r} is kept already; give another name with --run")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(_plain(entry), separators=(",", ":")) + "\n" for entry in new)
        self._follow()

    def _follow(self) -> None:
        """Take into the index what the file has grown by; all of it, if it is another file than before."""
        if not self.path.exists():
            return
        self._index.execute("BEGIN IMMEDIATE")  # another process may follow the same file
        with self.path.open("rb") as file:
            head = file.readline(4096)
            read = int(self._meta("read") or 0)
            if self._meta("head") != head.hex() or read > self.path.stat().st_size:
                self._index.execute("DELETE FROM results")
                read = 0
            file.seek(read)
            number = int(self._meta("lines") or 0) if read else 0
            rows = []
            for line in file:
                if not line.endswith(b"\n"):
                    break  # somebody is writing it now
                number += 1
                rows.append(_row(_parse(line, self.path, number)))
                read += len(line)
        self._index.executemany(f"INSERT INTO results ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        for key, value in (("head", head.hex()), ("read", str(read)), ("lines", str(number))):
            self._index.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
        self._index.commit()

    def _meta(self, key: str) -> str | None:
        found = self._index.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    # --- asking ---------------------------------------------------------------------------------------------

    def runs(self) -> list[tuple[str, str, str, int]]:
        """Every run's name, time, commit and number of cells, oldest first."""
        return self._index.execute(
            "SELECT run, MIN(time), MIN(commit_id), COUNT(*) FROM results GROUP BY run ORDER BY MIN(time), MIN(rowid)"
        ).fetchall()

    def has_run(self, run: str) -> bool:
        """Whether a run of that name is kept."""
        return self._index.execute("SELECT 1 FROM results WHERE run = ? LIMIT 1", (run,)).fetchone() is not None

    def run(self, run: str) -> list[Entry]:
        """The cells of one run, as they were added."""
        return list(self._select("WHERE run = ? ORDER BY rowid", (run,)))

    def cells(self, pattern: str = "*", last: int = 0) -> dict[str, list[Entry]]:
        """By cell, its entries, oldest first, of the ``last`` runs (0: all). ``pattern`` is a glob over cell ids."""
        names = [run for run, *_ in self.runs()][-last:]
        found: dict[str, list[Entry]] = {}
        chosen = set(names)
        for entry in self._select("WHERE cell GLOB ? ORDER BY cell, time, rowid", (pattern,)):
            if entry.run in chosen:
                found.setdefault(entry.cell, []).append(entry)
        return found

    def _select(self, condition: str, given: tuple[Any, ...]) -> Iterator[Entry]:
        for row in self._index.execute(f"SELECT {_COLUMNS} FROM results {condition}", given):
            values = dict(zip(Entry.__dataclass_fields__, row, strict=True))
            values["allowed"], values["versions"] = tuple(json.loads(row[-2])), json.loads(row[-1])
            yield Entry(**values)


def _index(path: Path) -> sqlite3.Connection:
    """The index beside the file; in memory where there is no file yet, or where nothing can be written."""
    if path.exists():
        try:
            index = sqlite3.connect(path.with_suffix(".sqlite"))
            index.executescript(_TABLES)
            return index
        except sqlite3.OperationalError:
            pass  # a folder one may only read: questions still have answers
    index = sqlite3.connect(":memory:")
    index.executescript(_TABLES)
    return index


def _plain(entry: Entry) -> dict[str, Any]:
    return {"schema": SCHEMA, **{name: getattr(entry, name) for name in Entry.__dataclass_fields__}}


def _parse(line: bytes, path: Path, number: int) -> Entry:
    try:
        value = json.loads(line)
        if value.pop("schema") != SCHEMA:
            raise InputError(f"has another schema than {SCHEMA}, which this version reads", file=path, line=number)
        value["allowed"] = tuple(value["allowed"])
        return Entry(**value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is no line of a history: {error!r}", file=path, line=number) from None


def _row(entry: Entry) -> tuple[Any, ...]:
    *plain, allowed, versions = (getattr(entry, name) for name in Entry.__dataclass_fields__)
    return (*plain, json.dumps(allowed), json.dumps(versions))
