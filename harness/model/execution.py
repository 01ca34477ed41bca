"""A program running on the progress machine: one step at a time, by whatever schedule its caller chooses."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from harness.model.program import Call, DeviceSync, Hear, Program, Statement, Tell, Wait
from harness.model.progress import Model, Part, Progress, Thread


@dataclass(slots=True, eq=False)
class Host:
    """One thread's place in the program. ``then`` is what a blocking call still has to wait for."""

    rank: int
    thread: str
    statements: tuple[Statement, ...]
    machine: Thread
    at: int = 0
    then: list[Part] = field(default_factory=list)
    handles: dict[str, list[Part]] = field(default_factory=dict)
    issued: int = 0

    @property
    def can_step(self) -> bool:
        return not self.machine.ended and not self.machine.blocked


class Execution:
    """The state of a program under a model. `step` moves one thread by one statement."""

    def __init__(self, program: Program, model: Model) -> None:
        self.progress = Progress(model, program.world)
        self.path = program.path or program.name
        self.hosts: list[list[Host]] = []
        self._ids: dict[Part, tuple[str, int]] = {}
        for rank in range(program.world):
            threads = program.threads(rank)
            if "main" not in threads:
                self.progress.threads[rank].clear()
            for thread in threads:
                self.progress.expect_thread(rank, thread)
            self.hosts.append([Host(rank, t, body, self.progress.threads[rank][t]) for t, body in threads.items()])

    def step(self, host: Host) -> None:
        """Execute the host's next statement, the wait that a blocking call left over, or its end."""
        progress, rank, thread = self.progress, host.rank, host.thread
        if host.then:
            parts, host.then = host.then, []
            progress.wait(rank, parts, thread, self._where(host, host.statements[host.at - 1]))
            return
        if host.at == len(host.statements):
            progress.end(rank, thread)
            return
        statement = host.statements[host.at]
        host.at += 1
        where = self._where(host, statement)
        match statement:
            case Call(ops, handle):
                parts = progress.issue(rank, ops, thread, where)
                for part in parts:
                    self._ids[part] = (thread, host.issued)
                    host.issued += 1
                if handle is not None:
                    host.handles[handle] = parts
                else:
                    host.then = [part for part in parts if not part.complete]
            case Wait(handle):
                progress.wait(rank, host.handles[handle], thread, where)
            case DeviceSync():
                progress.wait(rank, progress.outstanding(rank), thread, where)
            case Tell(to):
                progress.tell(rank, to)
            case Hear(source):
                progress.hear(rank, source, thread, where)

    def run(self) -> None:
        """Step every host until nothing can move, rank by rank. Linear where no rank has two threads."""
        by_machine = {id(host.machine): host for hosts in self.hosts for host in hosts}
        ready = [host for hosts in reversed(self.hosts) for host in reversed(hosts)]
        while ready:
            host = ready.pop()
            while host.can_step:
                self.step(host)
            changes = self.progress.drain()
            ready += (by_machine[id(machine)] for machine in (*changes.resumed, *changes.released))

    def key(self) -> Hashable:
        """What the future depends on: two executions of one program with equal keys end in the same outcomes."""
        return tuple(tuple(self._rank_key(rank, hosts)) for rank, hosts in enumerate(self.hosts))

    def _rank_key(self, rank: int, hosts: list[Host]) -> Iterator[Hashable]:
        progress = self.progress
        for host in hosts:
            machine = host.machine
            awaits = tuple(sorted(self._ids[p] for p in machine.awaits if not p.complete)) if machine.remaining else ()
            waiting = (machine.hears, tuple(machine.first_use), len(machine.backlog))
            yield host.at, bool(host.then), machine.ended, awaits, waiting
        lane = [(self._ids[part], part.key.number) for part in progress.lanes[rank]]
        yield tuple(lane if progress.model.width is not None else sorted(lane))
        yield progress.hearing(rank)
        # Complete on this rank, with others to come: which number such a part got decides whom it meets.
        parts = (part for instance in progress.instances.values() for part in instance.parts)
        ahead = [(self._ids[part], part.key.number) for part in parts if part.rank == rank and part.complete]
        yield tuple(sorted(ahead))

    def _where(self, host: Host, statement: Statement) -> tuple[tuple[str, int, str], ...]:
        return ((self.path, statement.line, f"rank {host.rank}, {host.thread}"),)
