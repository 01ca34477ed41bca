"""Program files, version 1: for every rank, which operations it issues, in which order, and where it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import ProgramError, UsageError
from harness.model import printing
from harness.model.operation import Group, Operation
from harness.model.progress import Model
from harness.model.reading import ThreadReader
from harness.model.statement import Call, Compute, DeviceSync, Hear, Statement, Tell, Wait
from harness.model.yamlnodes import Node, entries, read, scalar, sequence

OUTCOMES = ("completes", "deadlock", "missing", "mismatch", "silent_mix")
ORDERS = ("consistent", "cyclic")
__all__ = ["Call", "Compute", "DeviceSync", "Hear", "Program", "Statement", "Tell", "Wait"]
_KEYS = ("program", "name", "source", "about", "world", "groups", "ranks", "expect", "order")
#: The largest world: far above any reproduction, far below what would eat a machine.
MAX_WORLD = 65536


@dataclass(frozen=True)
class Program:
    """A whole program. ``ranks`` maps every rank to its threads, and each thread to its statements.

    ``expect`` maps a progress model to its outcomes. Ranks that the file leaves out have an empty ``main``.
    """

    world: int
    groups: tuple[Group, ...] = ()
    ranks: Mapping[int, Mapping[str, tuple[Statement, ...]]] = field(default_factory=dict)
    name: str = "program"
    source: str = ""
    about: str = ""
    expect: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    order: str | None = None
    path: str | None = None

    @classmethod
    def load(cls, path: str | Path) -> Program:
        """Read a file. Raises ProgramError that names file, line, statement and what is accepted."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(f"cannot be read: {error}", file=path) from error
        return cls.parse(text, path=str(path))

    @classmethod
    def parse(cls, text: str, *, path: str | None = None) -> Program:
        """The program a YAML text describes. Raises ProgramError."""
        return _Reader(path).program(read(text, path))

    def threads(self, rank: int) -> Mapping[str, tuple[Statement, ...]]:
        """The rank's threads; at least ``main``."""
        return self.ranks.get(rank) or {"main": ()}

    def histories(self) -> dict[int, dict[str, list[tuple[Operation, ...]]]]:
        """What each thread issues, in order: one tuple a call, longer for a batch."""
        return {
            rank: {
                thread: [s.ops for s in statements if isinstance(s, Call)]
                for thread, statements in self.threads(rank).items()
            }
            for rank in range(self.world)
        }

    def dump(self) -> str:
        """The program as YAML text that `parse` reads back to an equal program."""
        lines = ["program: 1"]
        texts = {"name": self.name, "source": self.source, "about": self.about}
        lines += [f"{key}: {printing.scalar(text)}" for key, text in texts.items() if text]
        lines.append(f"world: {self.world}")
        lines.append("groups:" if self.groups else "groups: {}")
        lines += [f"  {printing.scalar(g.name)}: [{', '.join(map(str, g.ranks))}]" for g in self.groups]
        lines.append("ranks:" if self.ranks else "ranks: {}")
        for rank, threads in self.ranks.items():
            lines += printing.rank(rank, threads)
        if self.expect:
            lines.append("expect:")
            lines += [f"  {model}: [{', '.join(outcomes)}]" for model, outcomes in self.expect.items()]
        if self.order:
            lines.append(f"order: {self.order}")
        return "\n".join(lines) + "\n"


class _Reader:
    """Turns YAML nodes into a program, checking names, members and handles as it goes."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.world = 0
        self.groups: dict[str, Group] = {}
        self.statements = 0

    def fail(self, line: int, message: str) -> ProgramError:
        return ProgramError(message, file=self.path, line=line)

    def program(self, node: Node) -> Program:
        fields: dict[str, Node] = {}
        for key, line, value in entries(node, self.path, "a program", f"a mapping with the keys {', '.join(_KEYS)}"):
            if key not in _KEYS:
                raise self.fail(line, f"key {key!r} is unknown; accepted are {', '.join(_KEYS)}")
            fields[key] = value
        for key in ("program", "world", "ranks"):
            if key not in fields:
                raise self.fail(node.line, f"key {key!r} is missing; a program needs program, world and ranks")
        version = self._integer(fields["program"], "program", 0)
        if version != 1:
            raise self.fail(fields["program"].line, f"program: {version} is a format this version can't read; it is 1")
        self.world = self._integer(fields["world"], "world", 1, MAX_WORLD)
        if "groups" in fields:
            self._groups(fields["groups"])
        ranks = self._ranks(fields["ranks"])
        return Program(
            world=self.world,
            groups=tuple(self.groups.values()),
            ranks=ranks,
            name=self._text(fields, "name") or "program",
            source=self._text(fields, "source"),
            about=self._text(fields, "about"),
            expect=self._expect(fields.get("expect")),
            order=self._order(fields.get("order")),
            path=self.path,
        )

    # --- parts of the file ----------------------------------------------------------------------------------

    def _groups(self, node: Node) -> None:
        for name, line, value in entries(node, self.path, "groups", "a mapping of names to rank lists"):
            _check_name(self, name, line)
            items = sequence(value, self.path, f"group {name}", "a list of ranks like [0, 1]")
            texts = [scalar(item, self.path, f"group {name}", "a rank") for item in items]
            self.groups[name] = Group(name, self.rank_list(name, texts, line))

    def rank_list(self, name: str, texts: list[str], line: int) -> tuple[int, ...]:
        """Distinct ranks of the world, in the order given."""
        ranks = tuple(self.rank(text, line, f"group {name}") for text in texts)
        if not ranks or len(set(ranks)) < len(ranks):
            raise self.fail(line, f"group {name}: {list(ranks)} must be one or more ranks, each once")
        return ranks

    def rank(self, text: str, line: int, what: str) -> int:
        if not text.strip().isdecimal() or int(text) >= self.world:
            raise self.fail(line, f"{what}: {text!r} is no rank of this world; accepted are 0 to {self.world - 1}")
        return int(text)

    def _ranks(self, node: Node) -> dict[int, dict[str, tuple[Statement, ...]]]:
        ranks: dict[int, dict[str, tuple[Statement, ...]]] = {}
        for key, line, value in entries(node, self.path, "ranks", "a mapping of ranks to statements"):
            if value.kind == "mapping":
                threads = {
                    thread: (thread_line, body)
                    for thread, thread_line, body in entries(value, self.path, f"rank {key}", "threads")
                }
            else:
                threads = {"main": (line, value)}
            for rank in self._rank_key(key, line):
                if rank in ranks:
                    raise self.fail(line, f"rank {rank} is given twice")
                reader = ThreadReader(self, rank, [body for _, body in threads.values()])
                ranks[rank] = {thread: tuple(reader.read(body)) for thread, (_, body) in threads.items()}
        return dict(sorted(ranks.items()))

    def _rank_key(self, key: str, line: int) -> Iterator[int]:
        """``0``, ``0,2``, ``0-3`` or a mixture."""
        for piece in key.split(","):
            first, dash, last = piece.partition("-")
            low = self.rank(first, line, f"ranks: {key}")
            high = self.rank(last, line, f"ranks: {key}") if dash else low
            if high < low:
                raise self.fail(line, f"ranks: {piece!r} runs backwards; a range is written low-high")
            yield from range(low, high + 1)

    def _expect(self, node: Node | None) -> dict[str, tuple[str, ...]]:
        if node is None:
            return {}
        expect = {}
        for key, line, value in entries(node, self.path, "expect", "progress models with their outcomes"):
            try:
                model = str(Model.parse(key))
            except UsageError as error:
                raise self.fail(line, f"expect: {error}") from None
            items = sequence(value, self.path, f"expect: {key}", "a list of outcomes")
            outcomes = tuple(scalar(item, self.path, f"expect: {key}", "an outcome") for item in items)
            for outcome in outcomes:
                if outcome not in OUTCOMES:
                    raise self.fail(line, f"expect: {key}: {outcome!r}; accepted are {', '.join(OUTCOMES)}")
            expect[model] = outcomes
        return expect

    def _order(self, node: Node | None) -> str | None:
        if node is None:
            return None
        text = scalar(node, self.path, "order", " or ".join(ORDERS))
        if text not in ORDERS:
            raise self.fail(node.line, f"order: {text!r}; accepted are {' and '.join(ORDERS)}")
        return text

    def _integer(self, node: Node, key: str, low: int, high: int | None = None) -> int:
        text = scalar(node, self.path, key, "a whole number")
        if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not low <= int(text) <= (high or int(text)):
            limit = f" from {low} to {high}" if high else ""
            raise self.fail(node.line, f"{key}: {text!r} must be a whole number{limit}")
        return int(text)

    def _text(self, fields: Mapping[str, Node], key: str) -> str:
        return scalar(fields[key], self.path, key, "text") if key in fields else ""


def _check_name(reader: _Reader, name: Any, line: int) -> None:
    if not name or any(c in name for c in " \t=[]{},") or name == "->":
        raise reader.fail(line, f"group name {name!r} must be one word without any of = [ ] {{ }} ,")
