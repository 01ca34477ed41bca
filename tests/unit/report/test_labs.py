"""Real engines beside models, and several labs' records side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.errors import UsageError
from harness.matrix.result import SKIPPED, CellResult
from harness.report.agreement import agreement
from harness.report.merge import labs, merge

from .some import COMPLETES, DEADLOCK, result


def _hangs(backend: str, verdict: str = "deadlock") -> CellResult:
    return result(backend, "without_fix", verdict, "cyclic", DEADLOCK)


def _passes(backend: str) -> CellResult:
    return result(backend, "with_fix", "completes", "consistent", COMPLETES)


# --- agreement ----------------------------------------------------------------------------------------------


def test_an_engine_agrees_with_the_models_that_come_through_where_it_does() -> None:
    independent = result("independent", "without_fix", "completes", "cyclic", COMPLETES)
    models = [_hangs("lane"), _passes("lane"), independent, _passes("independent")]
    assert agreement([*models, _hangs("oneccl"), _passes("oneccl")]) == [
        "oneccl: agrees with lane (2 cases); differs from independent in 1 of 2"
    ]


@pytest.mark.parametrize("verdict", ["timeout", "crashed", "missing"])
def test_a_hang_is_one_whatever_proves_or_ends_it(verdict: str) -> None:
    assert agreement([_hangs("lane"), _hangs("xccl", verdict)]) == ["xccl: agrees with lane (1 cases)"]


def test_nothing_is_said_of_cases_that_differ_or_did_not_run() -> None:
    skipped = result("nccl", "without_fix", SKIPPED, "unknown", DEADLOCK, reason="no device")
    assert agreement([_hangs("lane"), skipped, _passes("gloo")]) == []


def test_an_engine_may_agree_with_no_model() -> None:
    engine = result("oneccl", "without_fix", "completes", "cyclic", DEADLOCK)
    assert agreement([_hangs("lane"), engine]) == ["oneccl: differs from lane in 1 of 1"]


# --- labs ---------------------------------------------------------------------------------------------------


def _lab(folder: Path, results: Sequence[CellResult], hardware: dict[str, Any], note: object = None) -> Path:
    folder.mkdir(parents=True)
    for found in results:
        first = {"type": "cell", "schema": 1, "cell": found.cell.to_json(), "versions": {"torch": "2.13.0"}}
        rows = [{**first, "hardware": hardware}, {"type": "result", **found.to_json()}]
        if note:
            rows.insert(1, {"type": "note", "rank": 0, "name": "device", "value": note, "ns": 1})
        (folder / found.evidence).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_labs_stand_side_by_side(tmp_path: Path) -> None:
    cpu = _lab(tmp_path / "ci", [_hangs("lane"), _passes("lane")], {"cpu": "any", "command": "pytest scenarios"})
    skipped = result("xccl", "installed", SKIPPED, "unknown", COMPLETES, reason="2 devices", may_skip="needs 4")
    xpu = _lab(tmp_path / "max", [_hangs("xccl"), skipped], {"accelerators": "2 x Max"}, {"driver": "1.6"})
    text = merge(labs([cpu, xpu]))
    assert "| scenario | ranks, topology, arrival | ci<br>lane<br>without_fix | ci<br>lane<br>with_fix | " in text
    assert "max<br>xccl<br>without_fix |" in text
    assert "max<br>xccl<br>installed" not in text, "a column of nothing but skips says nothing"
    assert "xccl: agrees with lane (1 cases)" in text
    section = text.partition("### max")[2]
    assert "hardware: accelerators 2 x Max" in section
    assert "xccl, device: {'driver': '1.6'}" in section
    assert "skipped 1 on xccl: 2 devices" in section
    assert "command: `pytest scenarios`" in text.partition("### ci")[2]


def test_what_another_lab_ran_on_the_same_backend_is_counted(tmp_path: Path) -> None:
    one = _lab(tmp_path / "a" / "run", [_hangs("xccl"), _passes("xccl")], {})
    two = _lab(tmp_path / "b" / "run", [_hangs("xccl", "timeout")], {})
    text = merge(labs([one, two]))
    assert "run#2<br>xccl<br>without_fix" in text
    assert "not run here, but elsewhere on the same backends: 1 cells" in text.partition("### run#2")[2]
    assert "unexpected: `harness replay" in text.partition("### run#2")[2]


def test_the_command_merges_folders(tmp_path: Path) -> None:
    one = _lab(tmp_path / "one", [_hangs("lane")], {})
    two = _lab(tmp_path / "two", [_hangs("xccl")], {})
    done = CliRunner().invoke(main, ["report", "merge", str(one), str(two)])
    assert done.exit_code == 0
    assert "**2 labs, 2 cells: 2 as expected**" in done.output
    written = tmp_path / "out.md"
    assert CliRunner().invoke(main, ["report", "merge", str(one), "-o", str(written)]).exit_code == 0
    assert written.read_text().startswith("**1 labs")


def test_a_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no evidence"):
        labs([tmp_path])
