"""A program in one rank: its threads, its groups, its calls, and what came out of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch.distributed as dist

from harness import record
from harness.errors import HarnessError, UnsupportedError
from harness.model.operation import Group, Operation
from harness.model.program import Call, Compute, DeviceSync, Hear, Program, Statement, Tell, Wait
from harness.programs.calls import Issued, issue
from harness.programs.values import Code, mixture

#: Kinds of results: what a call's line gave, as ``(line, operation, labels with their counts, or the raw values)``.
Result = tuple[int, str, dict[str, int] | list[float]]


def body(program: Program) -> list[Result]:
    """Run the program in this rank, over the default process group; returns what every completed call gave.

    Groups of the file's head are made first, by every rank, unrecorded: they exist before the program starts.
    """
    rank = dist.get_rank()
    recorder = record.current()
    run = _Rank(program, rank)
    with recorder.unrecorded():
        for group in program.groups:
            run.create(group)
    threads = dict(program.threads(rank))
    first = "main" if "main" in threads else next(iter(threads))
    others = [
        threading.Thread(target=run.thread, args=(name, statements), name=name)
        for name, statements in threads.items()
        if name != first
    ]
    recorder.announce([thread.name for thread in others])
    for thread in others:
        thread.start()
    run.thread(first, threads[first])
    for thread in others:
        thread.join()
    if not run.errors:
        run.drain()
    if run.errors:
        raise run.errors[0]
    return run.results


@cache
def _place(path: str, line: int, name: str) -> Any:
    """Code that calls ``execute`` from a line of the program file, so that stacks show the program, not its reader."""
    return compile("\n" * (line - 1) + "execute()", path, "exec").replace(co_name=name)


@dataclass
class _Rank:
    program: Program
    rank: int
    groups: dict[Group, Any] = field(default_factory=dict)
    meetings: dict[Group, Any] = field(default_factory=dict)
    issued: list[Issued] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        labels = {
            op.label: None
            for calls in self.program.histories().values()
            for thread in calls.values()
            for ops in thread
            for op in ops
        }
        world: Any = dist.group.WORLD
        self.meets = record.current().granting or world.process.meets
        self.code = Code(tuple(labels), self.program.world)

    def create(self, group: Group) -> None:
        """Make a group; collective over the world, and the host waits for all of it."""
        unsorted = {} if list(group.ranks) == sorted(group.ranks) else {"sort_ranks": False}
        self.groups[group] = dist.new_group(list(group.ranks), group_desc=group.name, **unsorted)
        if not self.meets:
            # The creation waits for nobody, nor does the destruction: they meet beside it.
            with record.current().unrecorded():
                dist.barrier()
                self.meetings[group] = dist.new_group(list(group.ranks), **unsorted)

    def destroy(self, op: Operation) -> None:
        """Destroy a group; collective over it, and the host waits for all its members."""
        dist.destroy_process_group(self._group(op))
        if not self.meets:
            with record.current().unrecorded():
                dist.barrier(group=self.meetings[op.group])

    def thread(self, name: str, statements: Sequence[Statement]) -> None:
        """Execute one thread's statements; its first error is kept for the rank."""
        handles: dict[str, list[tuple[Issued, float | None]]] = {}
        path = self.program.path or self.program.name
        try:
            for statement in statements:
                place = _place(path, max(statement.line, 1), f"rank {self.rank}, {name}")
                exec(place, {"execute": lambda s=statement: self._execute(s, handles)})
        except BaseException as error:  # noqa: BLE001 - it is the rank's, and raised there
            self.errors.append(error)
        finally:
            record.current().end_thread()

    def drain(self) -> None:
        """Stay until everything is complete: a program completes only if every operation does, awaited or not."""
        with record.current().unrecorded():
            for call in self.issued:
                call.work.wait()

    def _execute(self, statement: Statement, handles: dict[str, list[tuple[Issued, float | None]]]) -> None:
        match statement:
            case Call(ops, handle) if ops[0].kind == "new_group":
                self.create(ops[0].group)
            case Call(ops, handle) if ops[0].kind == "destroy_group":
                self.destroy(ops[0])
            case Call(ops, handle):
                calls = self._issue(statement)
                if handle is None:
                    self._finish(calls, statement.line)
                else:
                    handles[handle] = calls
            case Wait(handle):
                self._finish(handles[handle], statement.line)
            case DeviceSync():
                with self.lock:
                    everything = list(self.issued)
                for call in everything:
                    call.work.wait()
            case Tell(to):
                record.current().tell(to)
            case Hear(source):
                record.current().hear(source)
            case Compute(ms):
                time.sleep(ms / 1000)

    def _group(self, op: Operation) -> Any:
        found = self.groups.get(op.group)
        if found is None:
            raise HarnessError(f"{op}: the thread that creates {op.group} has not done so yet")
        return found

    def _issue(self, call: Call) -> list[tuple[Issued, float | None]]:
        """Issue a call, or the calls of a batch together."""
        group = self._group(call.ops[0])
        if call.batch and any(op.group != call.ops[0].group for op in call.ops):
            raise UnsupportedError("torch takes only batches on one group")
        calls: list[tuple[Issued, float | None]] = []
        if call.batch:
            group._start_coalescing()
        for op, given in zip(call.ops, call.values, strict=True):
            value = self.code.value(op.label, op.dtype) if given is None else given
            default = op.label == ("p2p" if op.kind in ("send", "recv") else op.kind)
            with record.label("" if default else op.label):
                calls.append((issue(op, group, self.rank, value), given))
        if call.batch:
            whole = group._end_coalescing()
            for issued, _ in calls:
                issued.work = whole
        with self.lock:
            self.issued += [issued for issued, _ in calls]
        return calls

    def _finish(self, calls: Sequence[tuple[Issued, float | None]], line: int) -> None:
        """Wait for the calls, and keep what they gave."""
        for issued, _ in calls:
            issued.work.wait()
        for issued, given in calls:
            if not issued.slots:
                continue
            values = [float(slot.reshape(-1)[0]) for slot in issued.slots]
            known = given is None and self.code.value(issued.op.label, issued.op.dtype) is not None
            self.results.append((line, str(issued.op), mixture(self.code, values) if known else values))
