"""Programs as YAML text: what `Program.dump` writes, `Program.parse` reads back to an equal program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from harness.model.operation import Operation
from harness.model.program import Call, Compute, DeviceSync, Hear, Program, Statement, Tell, Wait


def dump(program: Program) -> str:
    """The whole file."""
    lines = ["program: 1"]
    lines += [f"{key}: {_quoted(text)}" for key in ("name", "source", "about") if (text := getattr(program, key))]
    lines.append(f"world: {program.world}")
    lines.append("groups:" if program.groups else "groups: {}")
    lines += [f"  {_quoted(group.name)}: [{', '.join(map(str, group.ranks))}]" for group in program.groups]
    lines.append("ranks:" if program.ranks else "ranks: {}")
    for rank, threads in program.ranks.items():
        lines += _rank(rank, dict(threads))
    if program.expect:
        lines.append("expect:")
        lines += [f"  {model}: [{', '.join(outcomes)}]" for model, outcomes in program.expect.items()]
    if program.order:
        lines.append(f"order: {program.order}")
    return "\n".join(lines) + "\n"


def _rank(rank: int, threads: dict[str, tuple[Statement, ...]]) -> Iterator[str]:
    if set(threads) == {"main"}:
        yield f"  {rank}:" if threads["main"] else f"  {rank}: []"
        yield from (f"    - {_item(s)}" for s in threads["main"])
        return
    yield f"  {rank}:"
    for thread, statements in threads.items():
        yield f"    {_quoted(thread)}:" if statements else f"    {_quoted(thread)}: []"
        yield from (f"      - {_item(s)}" for s in statements)


def _item(item: Statement) -> str:
    """A statement as an item of a YAML list."""
    if not (isinstance(item, Call) and item.batch):
        return _quoted(statement(item))
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


def _quoted(text: str) -> str:
    """The text as a YAML scalar, quoted only where it has to be."""
    return str(yaml.safe_dump(text, width=10**9, allow_unicode=True).splitlines()[0])


def _flow(text: str) -> str:
    """The text inside a flow list, where more characters have a meaning."""
    return str(yaml.safe_dump([text], width=10**9, allow_unicode=True, default_flow_style=True))[1:].rpartition("]")[0]
