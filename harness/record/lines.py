"""The lines of an evidence file: how each event looks as a JSON object, and how operations come back from one.

``thread``, ``seq`` and ``rank`` name who issued what; ``seq`` counts a rank's operations over all threads and groups.
``where`` is a stack, innermost frame first, each ``[file, line, function]``. ``ns`` is the rank's monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from harness.backends.spec import BackendSpec
from harness.model.certificate import Certificate
from harness.model.operation import Group, Operation
from harness.world.messages import Frame

Line = dict[str, Any]

#: A line, or a part of one, as JSON text; what JSON doesn't know is written as its own text.
text = json.JSONEncoder(separators=(",", ":"), default=str).encode


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


def event(rank: int, record: tuple[Any, ...]) -> Line | None:
    """The line of one event of `harness.world.messages.Events`, its numbers resolved; None for those without one."""
    match record:
        case ("i", seq, thread, ops, where, ns):
            return _line("issue", rank, ns, thread=thread, seq=seq, ops=[operation(op) for op in ops], where=where)
        case ("w", thread, seqs, where, others, ns):
            return _line("wait", rank, ns, thread=thread, seqs=seqs, where=where, others=others)
        case ("c", seq, ns):
            return _line("complete", rank, ns, seq=seq)
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


class Texts:
    """The same lines as JSON text, some times faster: names, operations and stacks come again and again.

    For one task: operations and stacks are known by identity, and held, since a task's are few.
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._parts: dict[int, tuple[str, Any]] = {}

    def event(self, rank: int, record: tuple[Any, ...]) -> str:
        """The text of the event's line; empty for those without one."""
        match record[0]:
            case "c":
                return f'{{"type":"complete","rank":{rank},"seq":{record[1]},"ns":{record[2]}}}'
            case "i":
                _, seq, thread, ops, where, ns = record
                return (
                    f'{{"type":"issue","rank":{rank},"thread":{self._name(thread)},"seq":{seq},'
                    f'"ops":{self._part(ops, _operations)},"where":{self._part(where)},"ns":{ns}}}'
                )
            case "w":
                _, thread, seqs, where, others, ns = record
                return (
                    f'{{"type":"wait","rank":{rank},"thread":{self._name(thread)},"seqs":{list(seqs)},'
                    f'"where":{self._part(where)},"others":{self._name(others)},"ns":{ns}}}'
                )
        line = event(rank, record)
        return "" if line is None else text(line)

    def _name(self, value: Any) -> str:
        found = self._names.get(value)
        if found is None:
            found = self._names[value] = text(value)
        return found

    def _part(self, value: Any, plain: Callable[[Any], Any] = list) -> str:
        found = self._parts.get(id(value))
        if found is None:
            found = self._parts[id(value)] = text(plain(value)), value
        return found[0]


def _operations(ops: tuple[Operation, ...]) -> list[Line]:
    return [operation(op) for op in ops]


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
    return {"type": "grant", "rank": rank, "seqs": list(seqs)}


def certificate(proof: Certificate | None, ns: int = 0) -> Line:
    """A proof, or None where a real engine went on after all and an earlier one is taken back."""
    return {"type": "certificate", "certificate": None if proof is None else proof.to_json(), "ns": ns}


def rank_outcome(rank: int, ok: bool, error: Mapping[str, Any] | None = None, **more: Any) -> Line:
    """How a rank's body ended; ``error`` has ``type``, ``message`` and ``traceback``."""
    return {"type": "rank", "rank": rank, "ok": ok, "error": None if error is None else dict(error)} | more


def end(seconds: float, timed_out: bool, **more: Any) -> Line:
    """The last line: the cell is over."""
    return {"type": "end", "seconds": round(seconds, 6), "timed_out": timed_out} | more


def _line(kind: str, rank: int, ns: int, **values: Any) -> Line:
    return {"type": kind, "rank": rank, **values, "ns": ns}
