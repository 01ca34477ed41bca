"""Runs read back from evidence, and JUnit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.errors import InputError, UsageError
from harness.matrix.result import CellResult
from harness.report.junit import junit
from harness.report.load import load_run, load_runs, newest_run

from .some import ALL, AS_EXPECTED, UNEXPECTED


def write_evidence(folder: Path, result: CellResult, *, finished: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    first = {"type": "cell", "schema": 1, "cell": result.cell.to_json(), "versions": {"torch": "2"}, "hardware": {}}
    lines = [first, *([{"type": "result", **result.to_json()}] if finished else [])]
    path = folder / result.evidence
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_run_is_read_back(tmp_path: Path) -> None:
    for result in ALL:
        write_evidence(tmp_path, result)
    run = load_run(tmp_path)
    assert sorted(r.cell.id for r in run.results) == sorted(r.cell.id for r in ALL)
    assert set(run.results) == set(ALL)
    assert run.records[0].versions == {"torch": "2"}
    assert run.unfinished == []


def test_evidence_that_breaks_off_is_named(tmp_path: Path) -> None:
    whole = write_evidence(tmp_path, AS_EXPECTED)
    open_end = write_evidence(tmp_path, UNEXPECTED, finished=False)
    half = tmp_path / "half.jsonl"
    half.write_text(whole.read_text()[:-30])
    (tmp_path / "empty.jsonl").touch()
    run = load_run(tmp_path)
    assert run.results == [AS_EXPECTED]
    assert set(run.unfinished) == {open_end, half, tmp_path / "empty.jsonl"}


def test_what_is_no_evidence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"type": "result"}\n')
    with pytest.raises(InputError, match=r"other.jsonl: is no evidence of a cell"):
        load_run(tmp_path)
    with pytest.raises(UsageError, match="holds no evidence"):
        load_run(tmp_path / "nowhere")


def test_the_newest_run_is_found(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run in"):
        newest_run(tmp_path)
    for name in ("20260101-000000", "20260102-000000"):
        write_evidence(tmp_path / ".harness" / name, AS_EXPECTED)
    (tmp_path / ".harness" / "20260103-000000").mkdir()
    assert newest_run(tmp_path).name == "20260102-000000"


def test_junit_counts_and_carries_properties() -> None:
    suite = ElementTree.fromstring(junit(ALL)).find("testsuite")
    assert suite is not None
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "skipped": "2",
    }
    failed = next(case for case in suite if case.find("failure") is not None)
    assert failed.get("name") == UNEXPECTED.cell.id
    assert failed.findtext("failure") == "rank 0 waits#x1B for <rank 1> & 2"
    found = {p.get("name"): p.get("value") for p in failed.iter("property")}
    assert found["verdict"] == "deadlock"
    assert found["replay"] == f"harness replay {UNEXPECTED.cell.token}"


def test_shards_are_joined_and_the_last_result_of_a_cell_counts(tmp_path: Path) -> None:
    again = dataclasses.replace(AS_EXPECTED, seconds=9.0)
    write_evidence(tmp_path / "1", AS_EXPECTED)
    write_evidence(tmp_path / "2", UNEXPECTED)
    write_evidence(tmp_path / "2", again)
    joined = load_runs([tmp_path / "1", tmp_path / "2"])
    assert sorted(r.seconds for r in joined.results) == [0.25, 9.0]
