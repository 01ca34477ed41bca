"""The lines of an evidence file: how each event looks as a JSON object, and how operations come back from one.

``thread``, ``seq`` and ``rank`` name who issued what; ``seq`` counts a rank's operations over all threads and groups.
``where`` is a stack, innermost frame first, each ``[file, line, function]``. ``ns`` is the rank's monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.backends.spec import BackendSpec
from harness.model.certificate import Certificate
from harness.model.operation import Group, Operation
from harness.world.messages import Frame

Line = dict[str, Any]

_json = json.JSONEncoder(separators=(",", ":")).encode


def operation(op: Operation) -> Line:
    """The operation as plain values; ``root`` and ``peer`` only where it has them."""
    line: Line = {"kind": op.kind, "group": [op.group.name, list(op.group.ranks)]}
    if op.root is not None:
        line["root"] = op.root
    if op.peer is not None:
        line["peer"] = op.peer
        line["tag"] = op.tag
    return line | {"n": op.n, "dtype": op.dtype, "label": op.label}


def parse_operation(line: Mapping[str, Any]) -> Operation:
    """The operation that `operation` wrote. Raises KeyError, TypeError or ValueError on anything else."""
    name, ranks = line["group"]
    return Operation(
        kind=str(line["kind"]),
        group=Group(str(name), tuple(int(rank) for rank in ranks)),
        root=line.get("root"),
        peer=line.get("peer"),
        tag=int(line.get("tag", 0)),
        n=int(line["n"]),
        dtype=str(line["dtype"]),
        label=str(line["label"]),
    )


def world(size: int, epoch: int, spec: BackendSpec, settle: bool) -> Line:
    """What the events that follow come from: the first line of a task."""
    return {"type": "world", "world": size, "epoch": epoch, "backend": spec._asdict(), "settle": settle}


class Rendered(dict[str, Any]):
    """A line that knows its JSON already: the same operations and stacks come again and again."""

    __slots__ = ("text",)
    text: str


def text_of(record: tuple[Any, ...]) -> str:
    """The part of an event's JSON that its operations and stack make up."""
    if record[0] == "i":
        return f'"ops":{_json([operation(op) for op in record[3]])},"where":{_json(record[4])}'
    return f'"where":{_json(record[3])}'


def event(rank: int, record: tuple[Any, ...], text: str = "") -> Line | None:
    """The line of one event of `harness.world.messages.Events`, its numbers resolved; None for those without one.

    ``text`` is `text_of` the record, if it is at hand.
    """
    match record:
        case ("i", seq, thread, ops, where, ns):
            line = _line("issue", rank, ns, thread=thread, seq=seq, ops=[operation(op) for op in ops], where=where)
            if text:
                line.text = f'{{"type":"issue","rank":{rank},"thread":{_json(thread)},"seq":{seq},{text},"ns":{ns}}}'
            return line
        case ("w", thread, seqs, where, others, ns):
            line = _line("wait", rank, ns, thread=thread, seqs=seqs, where=where, others=others)
            if text:
                line.text = (
                    f'{{"type":"wait","rank":{rank},"thread":{_json(thread)},"seqs":{_json(seqs)},{text},'
                    f'"others":{_json(others)},"ns":{ns}}}'
                )
            return line
        case ("c", seq, ns):
            line = _line("complete", rank, ns, seq=seq)
            line.text = f'{{"type":"complete","rank":{rank},"seq":{seq},"ns":{ns}}}'
            return line
        case ("b", thread, ns):
            return _line("thread_start", rank, ns, thread=thread)
        case ("e", thread, ns):
            return _line("thread_end", rank, ns, thread=thread)
        case ("n", name, value, ns):
            return _line("note", rank, ns, name=name, value=value)
        case ("t", thread, to, ns):
            return _line("tell", rank, ns, thread=thread, to=to)
        case ("h", thread, source, where, ns):
            return _line("hear", rank, ns, thread=thread, source=source, where=where)
        case ("end", ok, ns):
            return _line("finish", rank, ns, ok=ok)
    return None


def record_of(line: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The event that `event` made the line of; None for lines that are no event."""
    match line["type"]:
        case "issue":
            ops = tuple(parse_operation(op) for op in line["ops"])
            return ("i", line["seq"], line["thread"], ops, frames(line["where"]), line["ns"])
        case "wait":
            return ("w", line["thread"], tuple(line["seqs"]), frames(line["where"]), tuple(line["others"]), line["ns"])
        case "complete":
            return ("c", line["seq"], line["ns"])
        case "thread_start":
            return ("b", line["thread"], line["ns"])
        case "thread_end":
            return ("e", line["thread"], line["ns"])
        case "tell":
            return ("t", line["thread"], line["to"], line["ns"])
        case "hear":
            return ("h", line["thread"], line["source"], frames(line["where"]), line["ns"])
        case "finish":
            return ("end", line["ok"], line["ns"])
    return None


def frames(where: Any) -> tuple[Frame, ...]:
    """A stack as it was recorded."""
    return tuple(Frame(str(file), int(number), str(function)) for file, number, function in where)


def grant(rank: int, seqs: tuple[int, ...]) -> Line:
    """The supervisor let these operations of the rank go to the transport."""
    line = Rendered(type="grant", rank=rank, seqs=seqs)
    line.text = f'{{"type":"grant","rank":{rank},"seqs":{_json(seqs)}}}'
    return line


def certificate(proof: Certificate | None, ns: int = 0) -> Line:
    """A proof, or None where a real engine went on after all and an earlier one is taken back."""
    return {"type": "certificate", "certificate": None if proof is None else proof.to_json(), "ns": ns}


def rank_outcome(rank: int, ok: bool, error: Mapping[str, Any] | None = None, **more: Any) -> Line:
    """How a rank's body ended; ``error`` has ``type``, ``message`` and ``traceback``."""
    return {"type": "rank", "rank": rank, "ok": ok, "error": None if error is None else dict(error)} | more


def end(seconds: float, timed_out: bool, **more: Any) -> Line:
    """The last line: the cell is over."""
    return {"type": "end", "seconds": round(seconds, 6), "timed_out": timed_out} | more


def _line(kind: str, rank: int, ns: int, **values: Any) -> Rendered:
    return Rendered(type=kind, rank=rank, **values, ns=ns)
