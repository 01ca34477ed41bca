"""Dumps written in the flight recorder's own format, 2.10, as torch and ``torchfrtrace`` read them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

VERSION = "2.10"
#: torch's names of dtypes in dumps.
DTYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


def entry(
    record_id: int,
    group: tuple[str, str],
    name: str,
    *,
    collective_seq: int = 0,
    p2p_seq: int = 0,
    op_id: int = 0,
    pg_id: int = 0,
    inputs: Sequence[Sequence[int]] = (),
    outputs: Sequence[Sequence[int]] = (),
    dtype: str = "float32",
    state: str = "completed",
    created_ns: int = 0,
    frames: Sequence[tuple[str, int, str]] = (),
) -> dict[str, Any]:
    """One entry. ``group`` is (name, description), ``name`` such as ``nccl:all_reduce`` or ``nccl:send 0->1``
    (places within the group), ``frames`` are (file, line, function), innermost first."""
    kind = DTYPES.get(dtype, dtype)
    done = state == "completed"
    return {
        "frames": [{"name": function, "filename": file, "line": line} for file, line, function in frames],
        "record_id": record_id,
        "pg_id": pg_id,
        "process_group": group,
        "collective_seq_id": collective_seq,
        "p2p_seq_id": p2p_seq,
        "op_id": op_id,
        "profiling_name": name,
        "time_created_ns": created_ns,
        "input_sizes": [list(shape) for shape in inputs],
        "input_dtypes": [kind] * len(inputs),
        "output_sizes": [list(shape) for shape in outputs],
        "output_dtypes": [kind] * len(outputs),
        "state": state,
        "time_discovered_started_ns": created_ns if done else None,
        "time_discovered_completed_ns": created_ns if done else None,
        "retired": done,
        "timeout_ms": 600000,
        "is_p2p": name.split(":", 1)[-1].split(" ")[0] in ("send", "recv"),
    }


def dump(groups: Mapping[str, tuple[str, Sequence[int]]], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What one rank's file holds. ``groups`` maps a group's name to its description and ranks."""
    return {
        "version": VERSION,
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))} for name, (desc, ranks) in groups.items()
        },
        "comm_lib_version": "",
        "pg_status": {},
        "entries": list(entries),
    }


def write(path: Path, content: Mapping[str, Any], form: Literal["pickle", "json"] = "pickle") -> None:
    """Write one rank's file. JSON has no frames, and 0 for times that are not set, as torch writes it."""
    if form == "pickle":
        path.write_bytes(pickle.dumps(dict(content), protocol=2))
        return
    plain = dict(content)
    plain["entries"] = [_without_frames(e) for e in content["entries"]]
    if not plain["entries"]:
        del plain["entries"]
    path.write_text(json.dumps(plain), encoding="utf-8")


def _without_frames(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: 0 if value is None else value for key, value in record.items() if key != "frames"}
