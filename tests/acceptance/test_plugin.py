"""``pytest`` on a matrix: verdicts, the table, skips, failures."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.matrix.cell import Cell

DEADLOCK = "deepspeed_zero3_group_order/lane/2/mirror/reversed/without_fix,dtypes=float32,rounds=1"


def run(suite: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Pytest in a process of its own, as worlds fork from it."""
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *args, timeout=120)


def change(suite: pytest.Pytester, old: str, new: str) -> None:
    path = suite.path / "matrix.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


TABLE = [
    " scenario * gloo * gloo * lane * lane",
    "   case * without_fix * with_fix * without_fix * with_fix",
    " deepspeed_zero3_group_order",
    "   2 ranks, mirror, reversed, dtypes=float32, rounds=1 * completes ✓ * completes ✓ * deadlock ✓ * completes ✓",
    " * cyclic *s * consistent *s * cyclic *s * consistent *s",
    "lane: * model *",
    "4 cells: 4 as expected",
]


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["-n", "2"]], ids=["plain", "xdist"])
def test_a_run_ends_on_one_table(suite: pytest.Pytester, how: list[str]) -> None:
    result = run(suite, *how, "--junit-xml=junit.xml", "--evidence=kept", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(TABLE)
    assert result.stdout.str().count("4 cells:") == 1
    assert "deadlock, cyclic, expected in" in result.stdout.str()
    _junit_is_whole(suite.path / "junit.xml", 4)
    evidence = sorted((suite.path / "kept").glob("*.jsonl"))
    assert len(evidence) == 4
    for path in evidence:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [lines[0]["type"], lines[-1]["type"]] == ["cell", "result"]
        assert {"deepspeed", "torch", "python"} <= set(lines[0]["versions"])


@pytest.mark.slow
def test_forked_tests_reach_the_table_too(suite: pytest.Pytester) -> None:
    """Each test in a process of its own starts its own ranks, so one is enough here."""
    result = run(suite, "--forked", "--junit-xml=junit.xml", "--backend=lane", "--variant=without_fix")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["   2 ranks, mirror, reversed, dtypes=float32, rounds=1 * deadlock ✓", "1 cell: 1 as expected"]
    )
    _junit_is_whole(suite.path / "junit.xml", 1)


def _junit_is_whole(path: Path, cells: int) -> None:
    cases = list(ElementTree.parse(path).iter("testcase"))
    assert len(cases) == cells
    for case in cases:
        found = {p.get("name"): p.get("value") or "" for p in case.iter("property")}
        assert found["standing"] == "expected"
        assert found["verdict"] == (
            "deadlock" if "lane" in found["cell"] and "without" in found["cell"] else "completes"
        )
        assert found["replay"] == f"harness replay {Cell.parse(found['cell']).token}"


@pytest.mark.slow
def test_an_unexpected_verdict_fails_with_the_cycle_and_how_to_replay(suite: pytest.Pytester) -> None:
    change(suite, "expect: deadlock cyclic", "expect: completes")
    result = run(suite, "--backend=lane", "--variant=without_fix")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "deadlock, order cyclic; expected: completes (matrix line " in text
    assert "expected because both ranks wait for each other" in text
    assert "DEADLOCK under lane: ranks 0, 1 wait for each other in a cycle" in text
    assert re.search(r"rank 0 has .* queued behind ", text)
    token = re.search(r"replay: +harness replay (\S+)", text)
    assert token is not None
    assert Cell.parse(token[1]).token.startswith(DEADLOCK)
    assert "1 cell: 1 unexpected" in text
    replayed = suite.run(sys.executable, "-m", "harness", "replay", token[1], timeout=120)
    assert replayed.ret == 1
    assert replayed.outlines[0].startswith("deadlock, order cyclic")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("may_skip", "strict", "outcome"),
    [
        ("", [], {"skipped": 1}),
        ("", ["--strict"], {"failed": 1}),
        ("        may_skip: needs what is missing here\n", ["--strict"], {"skipped": 1}),
    ],
)
def test_a_skip_is_seen_and_must_be_foreseen_under_strict(
    suite: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    may_skip: str,
    strict: list[str],
    outcome: dict[str, int],
) -> None:
    change(suite, "        params:", f"{may_skip}        params:")
    change(suite, "[gloo, lane]", "[away, lane]")
    change(suite, "backend: gloo", "backend: away")
    suite.makepyfile(
        away="""
        from harness.backends.spec import BackendSpec

        class Away:
            spec = BackendSpec("away", "gloo", "independent", False)
            def available(self):
                return "no such device; plug one in"
            def init(self, rank, world, store, recorder):
                raise AssertionError
        BACKEND = Away()
        """
    )
    entry = suite.mkdir("away-1.dist-info")
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: away\nVersion: 1\n")
    (entry / "entry_points.txt").write_text("[harness.backends]\naway = away:BACKEND\n")
    monkeypatch.setenv("PYTHONPATH", str(suite.path))
    result = run(suite, "--backend=away", "--variant=with_fix", *strict)
    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(["skipped 1 on away: no such device; plug one in"])
    if "failed" in outcome:
        result.stdout.fnmatch_lines(["*skipped, which the matrix does not foresee: no such device*"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--suite=none"], "*there is no suite 'none'; accepted: pr"),
        (["--backend=nccl"], "*--backend nccl: no cell of the suite has it; accepted: gloo, lane"),
        (["--shard=5/4"], "*--shard 5/4: accepted: I/N with 1 <= I <= N, as in 3/8"),
        (["--matrix=none.yaml"], "*none.yaml: cannot be read*"),
    ],
)
def test_wrong_use_says_what_is_accepted(suite: pytest.Pytester, args: list[str], message: str) -> None:
    result = run(suite, *args)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"E   pytest.UsageError: {message}"])


def test_a_matrix_with_a_fault_is_named_by_line(suite: pytest.Pytester) -> None:
    change(suite, "topology: mirror", "topology: miror")
    result = run(suite)
    assert result.ret != 0
    assert "matrix.yaml:9: suites.pr.cells[0].topology" in result.stdout.str() + result.stderr.str()
    assert "accepted: single, mirror" in result.stdout.str() + result.stderr.str()


def test_cells_are_selected_by_options_marks_and_shards(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_cells="""
        import pytest

        @pytest.mark.harness(backend="lane", world=2)
        def test_cell(harness_cell):
            harness_cell.check()
        """
    )
    listed = run(suite, "--collect-only", "-q", "--variant=with_*").stdout.str()
    assert re.findall(r"test_cell\[(.*)\]", listed) == [
        "deepspeed_zero3_group_order-lane-2-mirror-reversed-with_fix,dtypes=float32,rounds=1"
    ]
    shards = [run(suite, "--collect-only", "-q", f"--shard={i}/2").stdout.str() for i in (1, 2)]
    assert [len(re.findall(r"test_cell\[", shard)) for shard in shards] == [1, 1]


def test_tests_without_cells_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert "harness" not in result.stdout.str().replace("plugins: ", "plugins ").split("collected")[1]
    assert not (pytester.path / ".harness").exists()


@pytest.mark.slow
def test_a_detector_that_never_reports_fails_the_suite(suite: pytest.Pytester) -> None:
    """Every guard above would be worthless if a blind detector passed: blind it, and see the suite fail."""
    change(suite, "    about: the smallest", "    limit: 3\n    about: the smallest")
    suite.makeconftest(
        """
        import harness.world.supervisor
        harness.world.supervisor.proof = lambda progress: None
        """
    )
    result = run(suite, "--backend=lane", "--variant=without_fix")
    result.assert_outcomes(failed=1)
    assert "timeout, order cyclic; expected: deadlock cyclic" in result.stdout.str()
