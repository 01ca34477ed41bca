"""Other projects' tests on real ranks: one test per backend, world and model, by a decorator or a fixture.

@harness.distributed(world=[2, 4], backend=["gloo", "lane"])
def test_sum():                      # its body runs in every rank, inside a process group
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor[0] == dist.get_world_size()

The pytest plugin that comes with this package turns it into four tests. Each leaves evidence and a row in the table,
and fails on a hang, with its cycle; on an order hazard though it passed; and on whatever a rank raised.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.matrix.cell import Scalar, make_cell
from harness.matrix.machine import hardware, versions
from harness.matrix.plan import Expectation
from harness.matrix.result import SKIPPED, CellResult
from harness.world.outcome import Run

#: What a test expects unless it says otherwise: it ends, and its order would serve on any backend.
EXPECTED = "completes consistent"
_MARK = "harness_world"
_ACCEPTED = ("world", "backend", "expect", "limit")

Expect = str | Sequence[str] | Mapping[str, str | Sequence[str]]


def distributed(
    *,
    world: int | Sequence[int] = 2,
    backend: str | Sequence[str] = "lane",
    expect: Expect = EXPECTED,
    limit: float = 60,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test's body run in every rank, once per world size and backend.

    ``expect`` is an outcome (``completes consistent``, or ``deadlock`` whatever the order), several, or these by
    backend (``{"lane": "deadlock cyclic", "*": "completes"}``). After ``limit`` seconds the ranks are stopped, with
    their stacks. The body's arguments are fixtures and parameters; they are pickled for the ranks.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(body)

        @wraps(body)
        def test(*, harness_world: WorldUnderTest, **arguments: Any) -> None:
            __tracebackhide__ = True
            harness_world.check(body, *(arguments[name] for name in signature.parameters))

        names = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
        names.append(inspect.Parameter(_MARK, inspect.Parameter.KEYWORD_ONLY))
        test.__signature__ = signature.replace(parameters=names, return_annotation=None)  # type: ignore[attr-defined]
        mark = pytest.mark.harness_world(world=world, backend=backend, expect=expect, limit=limit)
        marked: Callable[..., None] = mark(test)
        return marked

    return decorate


def parametrize(metafunc: pytest.Metafunc, wanted: Mapping[str, Sequence[str]]) -> None:
    """One test per world size and backend of its mark, as far as the patterns of the command line have them."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    given: dict[str, Any] = dict(mark.kwargs) if mark else {}
    unknown = sorted(set(given) - set(_ACCEPTED))
    if unknown:
        raise pytest.UsageError(f"mark {_MARK}: {unknown[0]!r} is unknown; accepted: {', '.join(_ACCEPTED)}")
    pairs = [
        (size, backend)
        for backend in _several(given.get("backend", "lane"))
        for size in _several(given.get("world", 2))
        if _fits(backend, wanted["backend"]) and _fits(size, wanted["world"])
    ]
    metafunc.parametrize(
        _MARK, pairs, ids=[f"{backend}-{size}".replace(":", "~") for size, backend in pairs], indirect=True
    )


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _fits(value: object, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(str(value), pattern) for pattern in patterns)


class WorldUnderTest:
    """What the fixture ``harness_world`` gives a test: ``size`` ranks on ``backend``, which run what they are handed.

    ``result`` is the last run's, or the first one's that was unexpected.
    """

    def __init__(
        self, size: int, backend: str, item: pytest.Item, folder: Path, note: Callable[[CellResult], None]
    ) -> None:
        self.size, self.backend = size, backend
        self.result: CellResult | None = None
        self._item, self._folder, self._note = item, folder, note
        self._runs = 0
        mark = item.get_closest_marker(_MARK)
        given: dict[str, Any] = dict(mark.kwargs) if mark else {}
        self._limit = float(given.get("limit", 60))
        self._expectation = _expectation(given.get("expect", EXPECTED), backend)

    def check(self, function: Callable[..., Any], *args: Any) -> Run:
        """Run ``function(*args)`` in every rank; fail the test on anything but what its mark expects."""
        __tracebackhide__ = True
        run, result = self._run(function, args)
        if result.standing == "unexpected":
            from harness.report.failure import failure

            shown = run.left_behind() if result.verdict == "crashed" else ""
            pytest.fail("\n".join(filter(None, (failure(result, self._folder), shown))), pytrace=False)
        return run

    def run(self, function: Callable[..., Any], *args: Any) -> Run:
        """Run ``function(*args)`` in every rank, and return what became of it; ``result`` has the verdict."""
        return self._run(function, args)[0]

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Run, CellResult]:
        from harness import backends
        from harness.record.evidence import Evidence, read
        from harness.record.verdict import verdict
        from harness.world import pool

        reason = backends.get(self.backend).available()
        cell = make_cell(
            self._parameters(), scenario=self._name(), backend=self.backend, world=self.size, topology="test",
            arrival="natural", variant="installed",
        )  # fmt: skip
        again = f"pytest {self._item.nodeid!r}"
        if reason is not None:
            self._keep(CellResult(cell, SKIPPED, "unknown", 0.0, self._expectation, reason, "", "", again))
            pytest.skip(reason)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{cell.id}.jsonl"
        with Evidence(path, cell.to_json(), versions(), hardware()) as evidence:
            world = pool.get(self.size, self.backend)
            started = time.perf_counter()
            run = world.run(function, *args, limit=self._limit, sink=evidence.write)
            seconds = time.perf_counter() - started
            found = verdict(read(path))
            result = CellResult(
                cell, found.verdict, found.order, seconds, self._expectation, found.explanation, "", path.name, again
            )
            evidence.write({"type": "result", **result.to_json()})
        self._keep(result)
        return run, result

    def _keep(self, result: CellResult) -> None:
        self._runs += 1
        if self.result is None or self.result.standing != "unexpected":
            self.result = result
            self._note(result)

    def _name(self) -> str:
        """Module and test, without the parameters."""
        module, _, test = self._item.nodeid.partition("::")
        return f"{Path(module).stem}.{test.partition('[')[0].replace('::', '.')}"

    def _parameters(self) -> dict[str, Scalar]:
        """The test's other parameters, and which of its runs this is."""
        spec = getattr(self._item, "callspec", None)
        found: dict[str, Scalar] = {}
        for name, value in (spec.params if spec else {}).items():
            if name != _MARK:
                found[name] = value if isinstance(value, str | int | float | bool) else repr(value)
        return found | ({"run": self._runs + 1} if self._runs else {})


def _expectation(expect: Expect, backend: str) -> Expectation:
    """What is expected on ``backend``. Raises UsageError where a mapping has nothing for it."""
    if isinstance(expect, Mapping):
        if backend not in expect and "*" not in expect:
            raise UsageError(f"expect: has nothing for backend {backend!r}; add it, or '*' for all others")
        expect = expect.get(backend, expect.get("*", EXPECTED))
    return Expectation((expect,) if isinstance(expect, str) else tuple(expect))
