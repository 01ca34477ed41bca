"""The pytest plugin: any test that asks for the fixture ``harness_cell`` runs once per cell of a suite.

The suite comes from ``matrix.yaml`` in the rootdir (``--matrix``, ``--suite``), narrowed by ``--backend``,
``--world`` and their like, and by ``--shard``. A cell that can't run here is a skip with its reason; pytest's own
``--strict`` turns a skip that the matrix did not foresee into a failure.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from harness import suites
from harness.errors import UsageError
from harness.matrix.cell import FIELDS
from harness.matrix.machine import COMMAND, hardware, versions
from harness.matrix.plan import Matrix, Planned, load_matrix, select
from harness.matrix.result import SKIPPED, CellResult
from harness.matrix.shard import Shard, read_times, shard_of

_MATRIX = pytest.StashKey[Matrix]()
_RESULT = pytest.StashKey[CellResult]()
_FOLDER = pytest.StashKey[Path]()
#: The attribute of a report that carries its cell's result; it survives pytest-xdist and pytest-forked.
_ATTRIBUTE = "harness_result"


# --- options ------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(
        "harness", "collective harness: cells of matrix.yaml (pytest's --strict: no unforeseen skip)"
    )
    group.addoption("--matrix", metavar="FILE", help="the matrix (default: matrix.yaml in the rootdir)")
    group.addoption("--suite", metavar="NAME", help="which of its suites to run (default: pr)")
    for name in FIELDS:
        group.addoption(
            f"--{name}",
            metavar="VALUE",
            action="append",
            help=f"only cells with this {name}; repeat it or use commas for several, * for any text",
        )
    group.addoption("--shard", metavar="I/N", help="only the I-th of N parts, as in 3/8")
    group.addoption(
        "--times",
        metavar="FILE",
        help="recorded seconds by cell id, to balance shards; every shard must read the same (harness report --times)",
    )
    group.addoption("--evidence", metavar="DIR", help="where evidence goes (default: a new folder in .harness/)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "harness(suite=NAME, scenario=..., backend=..., world=..., topology=..., arrival=..., variant=...): "
        "which cells the fixture harness_cell takes; each field a value, or a list of them",
    )
    config.addinivalue_line(
        "markers",
        "harness_world(world=..., backend=..., expect=..., limit=...): ranks for the fixture harness_world; world and "
        "backend a value, or a list of them",
    )
    os.environ.setdefault(COMMAND, shlex.join(["pytest", *map(str, config.invocation_params.args)]))
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        folder = Path(worker["harness_folder"])
    else:
        given = config.getoption("--evidence")
        folder = Path(given) if given else config.rootpath / ".harness" / time.strftime("%Y%m%d-%H%M%S")
    config.stash[_FOLDER] = folder.absolute()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Every pytest-xdist worker writes its evidence where the controller looks for it."""
    node.workerinput["harness_folder"] = str(node.config.stash[_FOLDER])


def is_strict(config: pytest.Config) -> bool:
    """Whether pytest's own ``--strict`` (or its ini key) is on."""
    try:
        return bool(config.getini("strict"))
    except ValueError:  # pytest 8 has the option alone
        return bool(config.getoption("strict", False))


# --- which cells --------------------------------------------------------------------------------------------


def matrix_path(config: pytest.Config) -> Path:
    given = config.getoption("--matrix")
    return Path(given) if given else config.rootpath / "matrix.yaml"


def the_matrix(config: pytest.Config) -> Matrix:
    """The checked matrix, read once. Raises InputError."""
    if _MATRIX not in config.stash:
        from harness.matrix.names import check_cell

        config.stash[_MATRIX] = load_matrix(matrix_path(config), check_cell)
    return config.stash[_MATRIX]


def planned_cells(config: pytest.Config, marker: dict[str, Any]) -> list[Planned]:
    """The cells that options and a test's ``harness`` mark select. Raises UsageError."""
    unknown = sorted(set(marker) - {"suite", *FIELDS})
    if unknown:
        raise UsageError(f"mark harness: {unknown[0]!r} is unknown; accepted: suite, {', '.join(FIELDS)}")
    planned = list(the_matrix(config).suite(config.getoption("--suite") or marker.get("suite", "pr")))
    planned = select(planned, {name: _patterns([value]) for name, value in marker.items() if name != "suite"})
    wanted = {name: _patterns(config.getoption(f"--{name}")) for name in FIELDS if config.getoption(f"--{name}")}
    planned = select(planned, wanted)
    shard = config.getoption("--shard")
    if shard:
        times = config.getoption("--times")
        planned = shard_of(planned, Shard.parse(shard), read_times(Path(times)) if times else {})
    return planned


def _patterns(values: list[Any]) -> list[str]:
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return [part for item in flat for part in str(item).split(",")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "harness_world" in metafunc.fixturenames:
        wanted = {name: _patterns(metafunc.config.getoption(f"--{name}") or ["*"]) for name in ("backend", "world")}
        suites.parametrize(metafunc, wanted)
    if "harness_cell" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("harness")
    try:
        planned = planned_cells(metafunc.config, dict(mark.kwargs) if mark else {})
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    metafunc.parametrize("harness_cell", planned, ids=[p.cell.id for p in planned], indirect=True)


# --- running one --------------------------------------------------------------------------------------------


def _note(item: pytest.Item, result: CellResult) -> None:
    """Keep a test's result for every report."""
    from harness.report.junit import properties

    item.stash[_RESULT] = result
    item.user_properties[:] = [p for p in item.user_properties if p[0] not in properties(result)]
    item.user_properties += properties(result).items()


class CellUnderTest:
    """What the fixture ``harness_cell`` gives a test: the cell, and how to run it."""

    def __init__(self, planned: Planned, item: pytest.Item) -> None:
        self.planned, self._item = planned, item
        self.cell = planned.cell

    def run(self) -> CellResult:
        """Run the cell and note its result for every report; judges nothing."""
        from harness.matrix.run import run_cell

        result = run_cell(self.planned, self._item.config.stash[_FOLDER])
        _note(self._item, result)
        return result

    def check(self) -> CellResult:
        """Run the cell; skip the test if it can't run here, fail it on anything unexpected."""
        __tracebackhide__ = True
        result = self.run()
        if result.verdict == SKIPPED:
            if result.standing == "unforeseen" and is_strict(self._item.config):
                pytest.fail(f"skipped, which the matrix does not foresee: {result.reason}", pytrace=False)
            pytest.skip(result.reason)
        if result.standing == "unexpected":
            from harness.report.failure import failure

            pytest.fail(failure(result, self._item.config.stash[_FOLDER]), pytrace=False)
        return result


@pytest.fixture
def harness_world(request: pytest.FixtureRequest) -> suites.WorldUnderTest:
    """Ranks on one of the backends and world sizes that a test's mark names; see `harness.distributed`."""

    def note(result: CellResult) -> None:
        _note(request.node, result)

    size, backend = request.param
    return suites.WorldUnderTest(size, backend, request.node, request.config.stash[_FOLDER], note)


@pytest.fixture
def harness_cell(request: pytest.FixtureRequest) -> CellUnderTest:
    """One cell of the suite: ``harness_cell.check()`` runs it and fails on an unexpected verdict."""
    return CellUnderTest(request.param, request.node)


def pytest_sessionfinish() -> None:
    """Standing worlds end with the pytest that started them."""
    pool = sys.modules.get("harness.world.pool")
    if pool is not None:
        pool.close_all()


# --- reports ------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "call" and _RESULT in item.stash:
        setattr(report, _ATTRIBUTE, item.stash[_RESULT].to_json())
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """With ``-v``, a cell's line says its verdict."""
    value = getattr(report, _ATTRIBUTE, None)
    if value is None or report.outcome == "skipped":
        return None
    letter, category = (".", "passed") if report.passed else ("F", "failed")
    seconds = f"in {value['seconds']:.2f} s"
    return category, letter, f"{value['verdict']}, {value['order']}, {value['standing']} {seconds}"


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not matrix_path(config).exists():
        return []
    installed = ", ".join(
        f"{name} {version}" for name, version in versions().items() if name not in ("python", "pytest")
    )
    machine = hardware()
    suite = config.getoption("--suite") or "pr"
    return [
        f"harness: {installed}",
        f"harness: {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['cpu']}; "
        f"suite {suite} of {matrix_path(config).name}",
    ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    results = [
        CellResult.from_json(getattr(report, _ATTRIBUTE))
        for reports in terminalreporter.stats.values()
        for report in reports
        if hasattr(report, _ATTRIBUTE)
    ]
    if not results:
        return
    from harness.report.agreement import agreement
    from harness.report.legend import legend
    from harness.report.terminal import reasons, summary, table
    from harness.report.write import write_html

    suites = the_matrix(config).suites if matrix_path(config).exists() else {}
    cells = dict.fromkeys(planned.cell for suite in suites.values() for planned in suite)
    order = {cell: index for index, cell in enumerate(cells)}  # a cell of several suites where the first has it
    results.sort(key=lambda result: order.get(result.cell, len(order)))
    writer = terminalreporter._tw
    terminalreporter.section("cells")
    ascii_only = "utf" not in (getattr(writer._file, "encoding", None) or "utf-8").lower()
    terminalreporter.write_line(table(results, color=writer.hasmarkup, ascii_only=ascii_only, width=writer.fullwidth))
    terminalreporter.write_line("")
    for line in (*legend(result.cell.backend for result in results), *agreement(results), *reasons(results)):
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"evidence: {_shown(config.stash[_FOLDER])}")
    try:
        terminalreporter.write_line(f"report:   {_shown(write_html(config.stash[_FOLDER]))}")
    except (UsageError, OSError) as error:  # another file among the evidence, a full disk: the results still count
        terminalreporter.write_line(f"report:   none: {error}")
    terminalreporter.write_line(summary(results))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
