"""Runs read back from their folders: each cell's evidence begins with what it ran on and ends with its result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError, UsageError
from harness.matrix.result import CellResult


@dataclass(frozen=True)
class Record:
    """One cell of a run. ``path`` is its evidence."""

    result: CellResult
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    path: Path


@dataclass(frozen=True)
class Run:
    """The cells of a run that came to a result, and those whose evidence breaks off."""

    records: list[Record]
    unfinished: list[Path]

    @property
    def results(self) -> list[CellResult]:
        return [record.result for record in self.records]


def newest_run(root: Path) -> Path:
    """The latest run in ``root/.harness``. Raises UsageError where there is none."""
    runs = sorted(path for path in (root / ".harness").glob("*/") if any(path.glob("*.jsonl")))
    if not runs:
        raise UsageError(f"no run in {root / '.harness'}; name a folder of evidence")
    return runs[-1]


def load_run(folder: Path) -> Run:
    """All evidence in ``folder``, oldest cell first. Raises UsageError for a folder without any."""
    paths = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    if not paths:
        raise UsageError(f"{folder}: holds no evidence (*.jsonl)")
    records, unfinished = [], []
    for path in paths:
        record = _record(path)
        if record is None:
            unfinished.append(path)
        else:
            records.append(record)
    return Run(records, unfinished)


def load_runs(folders: Sequence[Path]) -> Run:
    """Several runs as one; of a cell that is in more than one, the last folder's result counts."""
    runs = [load_run(folder) for folder in folders]
    latest = {record.result.cell: record for run in runs for record in run.records}
    return Run(list(latest.values()), [path for run in runs for path in run.unfinished])


def _record(path: Path) -> Record | None:
    text = path.read_text(encoding="utf-8").splitlines()
    try:
        first, last = json.loads(text[0]), json.loads(text[-1])
        if last["type"] != "result":
            return None
        return Record(CellResult.from_json(last), first["versions"], first["hardware"], path)
    except (ValueError, IndexError):
        return None  # a run that was killed leaves a line half written
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is no evidence of a cell: {error!r}", file=path) from None
