"""Statements as YAML text: what is written here, `harness.model.reading` reads back to equal statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import yaml

from harness.model.operation import Operation
from harness.model.statement import Call, Compute, DeviceSync, Hear, Statement, Tell, Wait


def rank(number: int, threads: Mapping[str, tuple[Statement, ...]]) -> Iterator[str]:
    """The lines of one rank; a rank with one thread is written without its name."""
    if set(threads) == {"main"}:
        yield f"  {number}:" if threads["main"] else f"  {number}: []"
        yield from (f"    - {_item(s)}" for s in threads["main"])
        return
    yield f"  {number}:"
    for thread, statements in threads.items():
        yield f"    {scalar(thread)}:" if statements else f"    {scalar(thread)}: []"
        yield from (f"      - {_item(s)}" for s in statements)


def _item(item: Statement) -> str:
    """A statement as an item of a YAML list."""
    if not (isinstance(item, Call) and item.batch):
        return scalar(statement(item))
    calls = ", ".join(_flow(_call(op, value)) for op, value in zip(item.ops, item.values, strict=True))
    return f"batch: [{calls}]" if item.handle is None else f"{{batch: [{calls}], as: {_flow(item.handle)}}}"


def statement(item: Statement) -> str:
    """One statement as a person reads it."""
    match item:
        case Wait(handle):
            return f"wait {handle}"
        case DeviceSync():
            return "device_sync"
        case Tell(rank):
            return f"tell {rank}"
        case Hear(rank):
            return f"hear {rank}"
        case Compute(ms):
            return f"compute ms={ms:g}"
        case Call(batch=True):
            calls = ", ".join(_call(op, value) for op, value in zip(item.ops, item.values, strict=True))
            return f"batch [{calls}]" + (f" -> {item.handle}" if item.handle else "")
    call = _call(item.ops[0], item.values[0])
    return call if item.handle is None else f"{call} -> {item.handle}"


def _call(op: Operation, value: float | None) -> str:
    if op.kind == "new_group":
        return f"new_group {op.group.name}=[{','.join(map(str, op.group.ranks))}]"
    return " ".join([op.kind, op.group.name, *_keys(op, value)])


def _keys(op: Operation, value: float | None) -> Iterable[str]:
    if op.root is not None:
        yield f"root={op.root}"
    if op.peer is not None:
        yield f"{'to' if op.kind == 'send' else 'from'}={op.peer}"
    if op.tag:
        yield f"tag={op.tag}"
    if op.label not in (op.kind, "p2p"):
        yield f"label={op.label}"
    if op.n != 8:
        yield f"n={op.n}"
    if op.dtype != "float32":
        yield f"dtype={op.dtype}"
    if value is not None:
        yield f"value={value!r}" if value != int(value) else f"value={int(value)}"


def scalar(text: str) -> str:
    """The text as a YAML scalar, quoted only where it has to be."""
    return str(yaml.safe_dump(text, width=10**9, allow_unicode=True).splitlines()[0])


def _flow(text: str) -> str:
    """The text inside a flow list, where more characters have a meaning."""
    return str(yaml.safe_dump([text], width=10**9, allow_unicode=True, default_flow_style=True))[1:].rpartition("]")[0]
