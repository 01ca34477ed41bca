"""Programs as arrays for `harness.model.fast`: every instance numbered beforehand, as no thread makes it uncertain."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.model.fast import HEAR, ISSUE, SYNC, TELL, WAIT, Arrays
from harness.model.operation import Group, InstanceKey, Operation, key_of, stream_of
from harness.model.program import Call, DeviceSync, Hear, Program, Statement, Tell, Wait


def arrays_of(program: Program) -> Arrays:
    """The program as arrays. Raises UsageError where a rank has several threads."""
    builder = _Builder(program.world)
    for rank in range(program.world):
        threads = list(program.threads(rank).values())
        if len(threads) > 1:
            raise UsageError(f"{program.name}: rank {rank} has {len(threads)} threads; the compiled form takes one")
        builder.rank(rank, threads[0])
    return builder.arrays()


class _Builder:
    def __init__(self, world: int) -> None:
        self.world = world
        self.events: list[tuple[int, int, int]] = []
        self.event_ptr, self.op_ptr = [0], [0]
        self.ops: list[tuple[int, int, int, int, bool, int, int]] = []
        self.instances: dict[InstanceKey, int] = {}
        self.parts: list[dict[tuple[int, str], int]] = []
        self.signatures: dict[Hashable, int] = {}
        self.labels: dict[str, int] = {}
        self.groups: dict[Group, int] = {}
        self.member_ptr, self.members = [0], dict[tuple[int, int], int]()
        self.pairs: dict[tuple[int, int], int] = {}

    def rank(self, rank: int, statements: tuple[Statement, ...]) -> None:
        """Add the one thread of the next rank."""
        counts: dict[Hashable, int] = {}
        handles: dict[str, tuple[int, int]] = {}
        for statement in statements:
            match statement:
                case Call(ops, handle):
                    first = len(self.ops)
                    for op in ops:
                        stream = stream_of(op)
                        counts[stream] = number = counts.get(stream, -1) + 1
                        self._part(rank, op, key_of(rank, op, number))
                    self.events.append((ISSUE, first, len(ops)))
                    if handle is None:
                        self.events.append((WAIT, first, first + len(ops)))
                    else:
                        handles[handle] = (first, first + len(ops))
                case Wait(handle):
                    self.events.append((WAIT, *handles[handle]))
                case DeviceSync():
                    self.events.append((SYNC, 0, 0))
                case Tell(to):
                    self.events.append((TELL, self._number(self.pairs, (rank, to)), to))
                case Hear(source):
                    self.events.append((HEAR, self._number(self.pairs, (source, rank)), source))
        self.event_ptr.append(len(self.events))
        self.op_ptr.append(len(self.ops))

    @staticmethod
    def _number(numbers: dict[Any, int], key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    def _part(self, rank: int, op: Operation, key: InstanceKey) -> None:
        instance = self._number(self.instances, key)
        if instance == len(self.parts):
            self.parts.append(dict.fromkeys(self._roles(key), -1))
        self.parts[instance][rank, op.kind if key.stream == "p" else ""] = len(self.ops)
        if key.stream == "p":
            signature: Hashable = ("p2p", op.n, op.dtype)
        else:
            signature = (op.kind, op.root, op.n, op.dtype, op.group if op.kind == "new_group" else None)
        group = self._group(op.group) if op.kind != "new_group" else -1
        self.ops.append(
            (
                rank,
                instance,
                self._number(self.signatures, signature),
                self._number(self.labels, op.label),
                op.kind == "send",
                group,
                self.members[group, rank] if group >= 0 else -1,
            )
        )

    def _roles(self, key: InstanceKey) -> list[tuple[int, str]]:
        if key.stream == "p":
            return [(key.src, "send"), (key.dst, "recv")]
        return [(rank, "") for rank in (key.group.ranks if key.group else range(self.world))]

    def _group(self, group: Group) -> int:
        number = self.groups.get(group)
        if number is None:
            number = self.groups[group] = len(self.groups)
            for rank in group.ranks:
                self.members[number, rank] = len(self.members)
            self.member_ptr.append(len(self.members))
        return number

    def arrays(self) -> Arrays:
        """Everything added so far."""
        events = np.array(self.events, np.int64).reshape(-1, 3).T
        ops = np.array(self.ops, np.int64).reshape(-1, 7).T
        slots = [(rank, op) for parts in self.parts for (rank, _), op in parts.items()]
        slot = np.array(slots, np.int64).reshape(-1, 2).T
        columns = [np.ascontiguousarray(column) for column in (*events, *ops, *slot)]
        code, first, second, rank, instance, sig, label, send, group, member, slot_rank, slot_op = columns
        return Arrays(
            event_ptr=np.array(self.event_ptr, np.int64),
            event_code=code.astype(np.int8),
            event_a=first,
            event_b=second,
            op_ptr=np.array(self.op_ptr, np.int64),
            op_rank=rank,
            op_instance=instance,
            op_sig=sig,
            op_label=label,
            op_send=send.astype(np.bool_),
            op_group=group,
            op_member=member,
            slot_ptr=np.cumsum([0, *(len(parts) for parts in self.parts)], dtype=np.int64),
            slot_rank=slot_rank,
            slot_op=slot_op,
            member_ptr=np.array(self.member_ptr, np.int64),
            member_rank=np.array([rank for _, rank in self.members], np.int64),
            pairs=len(self.pairs),
        )
