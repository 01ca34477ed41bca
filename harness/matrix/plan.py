"""The cells of a suite, each with what is expected of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.matrix.cell import FIELDS, Cell, Scalar, make_cell
from harness.matrix.document import Document, YamlPath, load
from harness.matrix.schema import Block, Machine, Rule, Suite, validated

#: Says of a cell that can't exist which field is wrong, and what is accepted (`harness.matrix.names`).
Check = Callable[[Cell], tuple[str, str] | None]


@dataclass(frozen=True)
class Expectation:
    """What may come of a cell: each outcome a verdict, or a verdict and an order (``deadlock cyclic``).

    ``line`` is the rule's line in the matrix; 0 where there is no rule.
    """

    outcomes: tuple[str, ...]
    line: int = 0
    because: str = ""

    def met_by(self, verdict: str, order: str) -> bool:
        return verdict in self.outcomes or f"{verdict} {order}" in self.outcomes

    def __str__(self) -> str:
        return " or ".join(self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {"outcomes": list(self.outcomes), "line": self.line, "because": self.because}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Expectation:
        return cls(tuple(value["outcomes"]), value["line"], value["because"])


@dataclass(frozen=True)
class Planned:
    """A cell, what is expected of it, why it may be skipped (if it may), and its limit in seconds."""

    cell: Cell
    expectation: Expectation
    may_skip: str = ""
    limit: float = 60.0


@dataclass(frozen=True)
class Matrix:
    """A checked matrix file."""

    file: str
    suites: Mapping[str, Sequence[Planned]]
    about: Mapping[str, str] = field(default_factory=dict)
    machines: Mapping[str, Mapping[str, Machine]] = field(default_factory=dict)

    def suite(self, name: str) -> Sequence[Planned]:
        if name not in self.suites:
            raise UsageError(f"{self.file}: there is no suite {name!r}; accepted: {', '.join(self.suites)}")
        return self.suites[name]

    def expectation(self, cell: Cell) -> Expectation | None:
        """What the suites expect of a cell that is in one of them."""
        found = (p.expectation for planned in self.suites.values() for p in planned if p.cell == cell)
        return next(found, None)


def load_matrix(path: Path, check: Check | None = None) -> Matrix:
    """Read, validate and expand a matrix. Raises InputError naming file, line, key, value and what is accepted.

    Without ``check`` any name of a scenario, backend, topology, arrival or variant passes.
    """
    document = load(path)
    file = validated(document)
    used: set[int] = set()
    suites = {}
    for name, suite in file.suites.items():
        planned: dict[Cell, Planned] = {}
        for index, block in enumerate(suite.cells):
            path_of_block: YamlPath = ("suites", name, "cells", index)
            for cell in expand(block):
                fault = check(cell) if check else None
                if fault:
                    raise document.error((*path_of_block, fault[0]), fault[1])
                if cell in planned:
                    raise document.error(path_of_block, f"the cell {cell.token} is in suite {name} already")
                expectation = _expectation(document, file.expectations, cell, path_of_block, used)
                planned[cell] = Planned(cell, expectation, block.may_skip, suite.limit)
        suites[name] = list(planned.values())
        _check_machines(document, name, suite, planned)
    for index in range(len(file.expectations)):
        if index not in used:
            raise document.error(
                ("expectations", index), "applies to no cell of any suite, or an earlier rule takes them all"
            )
    about = {name: suite.about for name, suite in file.suites.items()}
    return Matrix(document.file, suites, about, {name: suite.machines for name, suite in file.suites.items()})


def expand(block: Block) -> Iterable[Cell]:
    """Every combination, scenario outermost and parameters innermost."""
    names = list(block.params)
    for values in itertools.product(*(getattr(block, key) for key in FIELDS)):
        for params in itertools.product(*block.params.values()):
            yield make_cell(dict(zip(names, params, strict=True)), **dict(zip(FIELDS, values, strict=True)))


def select(planned: Sequence[Planned], wanted: Mapping[str, Collection[str]]) -> list[Planned]:
    """The cells whose fields match one of the wanted patterns, for each field named in ``wanted``.

    Raises UsageError where a pattern matches none of the suite's values of that field.
    """
    for key, patterns in wanted.items():
        values = sorted({str(getattr(p.cell, key)) for p in planned})
        for pattern in patterns:
            if not any(fnmatchcase(value, pattern) for value in values):
                raise UsageError(f"--{key} {pattern}: no cell of the suite has it; accepted: {', '.join(values)}")
    return [p for p in planned if all(_matches(getattr(p.cell, key), patterns) for key, patterns in wanted.items())]


def _expectation(document: Document, rules: Sequence[Rule], cell: Cell, path: YamlPath, used: set[int]) -> Expectation:
    for index, rule in enumerate(rules):
        if _applies(rule, cell):
            used.add(index)
            line = document.line(("expectations", index)) or 0
            return Expectation(tuple(rule.expect), line, rule.because)
    raise document.error(path, f"no expectation covers the cell {cell.token}; add a rule to `expectations`")


def _check_machines(document: Document, name: str, suite: Suite, cells: Iterable[Cell]) -> None:
    """Where a suite names machines, each of its cells runs on exactly one."""
    for backend in dict.fromkeys(cell.backend for cell in cells):
        serving = [m for m, machine in suite.machines.items() if _matches(backend, machine.backend)]
        if suite.machines and len(serving) != 1:
            what = f"served by {', '.join(serving)}" if serving else "served by none"
            raise document.error(("suites", name, "machines"), f"backend {backend} is {what}; accepted: by exactly one")


def _applies(rule: Rule, cell: Cell) -> bool:
    if rule.world is not None and cell.world not in rule.world:
        return False
    if not all(_matches(getattr(cell, key), getattr(rule, key)) for key in FIELDS if key != "world"):
        return False
    given: dict[str, Scalar] = dict(cell.params)
    return all(key in given and _matches(given[key], values) for key, values in rule.params.items())


def _matches(value: Any, patterns: Iterable[Any]) -> bool:
    return any(value == pattern or fnmatchcase(str(value), str(pattern)) for pattern in patterns)
