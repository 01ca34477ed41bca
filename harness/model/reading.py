"""Statements of a program file: ``OP GROUP [key=value ...] [-> handle]`` and the rest, checked as they are read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Protocol

from harness.errors import ProgramError
from harness.model.operation import POINT_TO_POINT, ROOTED, SYMMETRIC, Group, Operation
from harness.model.statement import Call, Compute, DeviceSync, Hear, Statement, Tell, Wait
from harness.model.yamlnodes import Node, entries, scalar, sequence

#: Far above any reproduction, far below what would eat a machine.
MAX_STATEMENTS = 10_000_000
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")
_DTYPES = _FLOATS + _INTEGERS
_COMMON = ("label", "n", "dtype", "value")
_ACCEPTED = (
    "OP GROUP [key=value ...] [-> handle] with OP one of " + ", ".join(SYMMETRIC + ROOTED + POINT_TO_POINT) + "; "
    "batch: [...]; wait HANDLE; device_sync; new_group NAME=[RANKS]; destroy_group GROUP; tell RANK; hear RANK; "
    "compute ms=N"
)
_NEW_GROUP = re.compile(r"new_group\s+([^\s=]+)\s*=\s*\[([^\]]*)\]")


class FileReader(Protocol):
    """What the reader of the whole file offers to the reader of one rank."""

    path: str | None
    world: int
    groups: dict[str, Group]
    statements: int

    def fail(self, line: int, message: str) -> ProgramError: ...
    def rank(self, text: str, line: int, what: str) -> int: ...
    def rank_list(self, name: str, texts: list[str], line: int) -> tuple[int, ...]: ...


class ThreadReader:
    """Reads the threads of one rank. ``bodies`` are all of them: one may use a group that another creates."""

    def __init__(self, file: FileReader, rank: int, bodies: list[Node]) -> None:
        self.file = file
        self.rank = rank
        self.elsewhere: dict[str, set[Group]] = {}
        for body in bodies:
            for node in sequence(body, file.path, f"rank {rank}", "a list of statements"):
                if node.kind == "scalar" and (match := _NEW_GROUP.fullmatch(str(node.value).strip())):
                    group = self._created(match, node.line)
                    self.elsewhere.setdefault(group.name, set()).add(group)

    def read(self, body: Node) -> Iterator[Statement]:
        """The statements of one thread, in order."""
        created: dict[str, Group] = {}
        handles: set[str] = set()
        for node in sequence(body, self.file.path, f"rank {self.rank}", "a list of statements"):
            self.file.statements += 1
            if self.file.statements > MAX_STATEMENTS:
                raise self.file.fail(node.line, f"more than {MAX_STATEMENTS} statements")
            if node.kind == "mapping":
                statement: Statement = self._batch(node, created)
            else:
                statement = self._statement(
                    scalar(node, self.file.path, "a statement", _ACCEPTED).strip(), node.line, created
                )
            if isinstance(statement, Wait) and statement.handle not in handles:
                known = ", ".join(sorted(handles)) or "none so far"
                raise self.file.fail(
                    node.line, f"wait {statement.handle}: no earlier call of this thread has that handle ({known})"
                )
            if isinstance(statement, Call) and statement.handle:
                handles.add(statement.handle)
            yield statement

    # --- one statement --------------------------------------------------------------------------------------

    def _statement(self, text: str, line: int, created: dict[str, Group]) -> Statement:
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        if word == "device_sync" and not rest:
            return DeviceSync(line)
        if word == "wait":
            if not rest or " " in rest:
                raise self.file.fail(line, f"{text!r}: accepted is wait HANDLE")
            return Wait(rest, line)
        if word in ("tell", "hear"):
            rank = self.file.rank(rest, line, text)
            return Tell(rank, line) if word == "tell" else Hear(rank, line)
        if word == "compute":
            return Compute(self._milliseconds(text, rest, line), line)
        if word == "new_group":
            match = _NEW_GROUP.fullmatch(text)
            if match is None:
                raise self.file.fail(line, f"{text!r}: accepted is new_group NAME=[RANK, ...], without a handle")
            group = created[match[1]] = self._created(match, line)
            return Call((Operation("new_group", group),), line=line)
        return self._call(text, line, created)

    def _created(self, match: re.Match[str], line: int) -> Group:
        texts = [piece.strip() for piece in match[2].split(",")] if match[2].strip() else []
        return Group(match[1], self.file.rank_list(match[1], texts, line))

    def _milliseconds(self, text: str, rest: str, line: int) -> float:
        try:
            ms = float(rest.removeprefix("ms=")) if rest.startswith("ms=") else -1.0
        except ValueError:
            ms = -1.0
        if not 0 <= ms < math.inf:
            raise self.file.fail(line, f"{text!r}: accepted is compute ms=N with N from 0")
        return ms

    def _batch(self, node: Node, created: dict[str, Group]) -> Call:
        accepted = "a statement, or a mapping with batch: [calls] and optionally as: HANDLE"
        fields = {key: value for key, _, value in entries(node, self.file.path, "a statement", accepted)}
        if "batch" not in fields or set(fields) - {"batch", "as"}:
            raise self.file.fail(node.line, f"a mapping with the keys {', '.join(fields)}: accepted is {accepted}")
        calls = []
        for item in sequence(fields["batch"], self.file.path, "batch", "a list of send and recv calls"):
            text = scalar(item, self.file.path, "batch", "a list of send and recv calls").strip()
            call = self._call(text, item.line, created)
            if call.ops[0].kind not in POINT_TO_POINT or call.handle:
                raise self.file.fail(item.line, f"{text!r} in a batch: accepted are send and recv, without a handle")
            calls.append(call)
        if not calls:
            raise self.file.fail(node.line, "batch: at least one send or recv")
        handle = scalar(fields["as"], self.file.path, "as", "a handle") if "as" in fields else None
        if handle is not None and (not handle or " " in handle):
            raise self.file.fail(node.line, f"as: {handle!r} must be one word")
        ops = tuple(call.ops[0] for call in calls)
        return Call(ops, handle, tuple(call.values[0] for call in calls), batch=True, line=node.line)

    def _call(self, text: str, line: int, created: dict[str, Group]) -> Call:
        head, arrow, handle = text.partition("->")
        handle = handle.strip()
        words = head.split()
        kinds = (*SYMMETRIC, *ROOTED, *POINT_TO_POINT, "destroy_group")
        if not words or words[0] not in kinds:
            raise self.file.fail(line, f"{text!r} is no statement; accepted are {_ACCEPTED}")
        kind = words[0]
        if arrow and (not handle or " " in handle or kind == "destroy_group"):
            takes = "destroy_group takes no handle" if kind == "destroy_group" else "a handle is one word after ->"
            raise self.file.fail(line, f"{text!r}: {takes}")
        if len(words) < 2 or "=" in words[1]:
            raise self.file.fail(line, f"{text!r}: the group is missing; accepted is {kind} GROUP [key=value ...]")
        group = self._group(words[1], text, line, created)
        keys = self._keys(kind, words[2:], text, line)
        op = self._operation(kind, group, keys, text, line)
        return Call((op,), handle or None, (self._number(keys.get("value"), text, line),), line=line)

    def _group(self, name: str, text: str, line: int, created: dict[str, Group]) -> Group:
        elsewhere = self.elsewhere.get(name, set())
        group = created.get(name) or self.file.groups.get(name)
        if group is None and len(elsewhere) == 1:
            group = next(iter(elsewhere))
        if group is None:
            why = "several rank lists in other threads" if elsewhere else "not created before"
            known = ", ".join(sorted({*self.file.groups, *created})) or "none"
            raise self.file.fail(line, f"{text!r}: group {name!r} is unknown ({why}); known here: {known}")
        if self.rank not in group.ranks:
            raise self.file.fail(
                line, f"{text!r}: rank {self.rank} is no member of {name}, whose ranks are {list(group.ranks)}"
            )
        return group

    def _keys(self, kind: str, words: list[str], text: str, line: int) -> dict[str, str]:
        required = {"send": "to", "recv": "from"}.get(kind, "root" if kind in ROOTED else None)
        accepted = (*((required,) if required else ()), *(("tag",) if kind in POINT_TO_POINT else ()), *_COMMON)
        keys: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or not value or key not in accepted or key in keys:
                problem = "is given twice" if key in keys else "is not accepted"
                raise self.file.fail(
                    line, f"{text!r}: {word!r} {problem}; {kind} takes {', '.join(k + '=' for k in accepted)}"
                )
            keys[key] = value
        if required and required not in keys:
            raise self.file.fail(line, f"{text!r}: {required}= is missing; {kind} needs it")
        return keys

    def _operation(self, kind: str, group: Group, keys: dict[str, str], text: str, line: int) -> Operation:
        def member(key: str) -> int | None:
            if key not in keys:
                return None
            rank = self.file.rank(keys[key], line, f"{text!r}: {key}=")
            if rank not in group.ranks:
                raise self.file.fail(line, f"{text!r}: {key}={rank} is no member of {group}")
            return rank

        dtype = keys.get("dtype", "float32")
        if dtype not in _DTYPES:
            raise self.file.fail(line, f"{text!r}: dtype={dtype}; accepted are {', '.join(_DTYPES)}")
        peer = member("to") if kind == "send" else member("from")
        return Operation(
            kind,
            group,
            root=member("root"),
            peer=peer,
            tag=self._whole(keys.get("tag"), "tag", 0, 0, text, line),
            n=self._whole(keys.get("n"), "n", 1, 8, text, line),
            dtype=dtype,
            label=keys.get("label", ""),
        )

    def _whole(self, value: str | None, key: str, low: int, default: int, text: str, line: int) -> int:
        if value is None:
            return default
        if not (value.isascii() and value.isdecimal()) or len(value) > 12 or int(value) < low:
            raise self.file.fail(line, f"{text!r}: {key}={value} must be a whole number from {low}")
        return int(value)

    def _number(self, value: str | None, text: str, line: int) -> float | None:
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.file.fail(line, f"{text!r}: value={value} must be a number")
        return number
