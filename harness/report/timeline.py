"""A cell's operations as a trace for Perfetto or chrome://tracing (the JSON trace event format)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.report.picture import Line, Mark, picture


def timeline(lines: Iterable[Line]) -> dict[str, Any]:
    """A process per rank, a track per thread and group; parts of one instance carry its number.

    Times are microseconds from the first issue. An operation that never completed runs to the end of the trace and
    says so in its arguments. Groups have tracks of their own, since slices of one track must nest.
    """
    drawn = picture(lines)
    marks = drawn.marks
    start = min((mark.issued for mark in marks), default=0)
    end = max((mark.done or mark.issued for mark in marks), default=0) + 1000
    tracks: dict[tuple[int, str], int] = {}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(drawn.ranks)
    ]
    flows: dict[object, int] = {}
    for mark in marks:
        name = f"{mark.thread}, {mark.op.group}"
        track = tracks.setdefault((mark.rank, name), len(tracks) + 1)
        flow = flows.setdefault(mark.key, len(flows) + 1)
        begin = (mark.issued - start) / 1000
        place = {"pid": mark.rank, "tid": track, "cat": "collective"}
        # Overlapping operations of one track are async slices: unlike plain ones they need not nest.
        slice_id = f"{mark.rank}.{mark.seq}"
        events.append(place | {"ph": "b", "id": slice_id, "name": mark.name, "ts": begin, "args": _arguments(mark)})
        events.append(place | {"ph": "e", "id": slice_id, "name": mark.name, "ts": ((mark.done or end) - start) / 1000})
        events.append(
            place | {"ph": "i", "name": f"issue {mark.name}", "ts": begin, "s": "t", "args": {"instance": flow}}
        )
    for (rank, name), track in tracks.items():
        events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _arguments(mark: Mark) -> dict[str, Any]:
    return {
        "label": mark.op.label,
        "elements": mark.op.n,
        "dtype": mark.op.dtype,
        "where": mark.where,
        "completed": mark.done is not None,
    }
