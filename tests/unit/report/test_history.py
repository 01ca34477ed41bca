"""Results kept over many runs: the store, its index, flakes, drift, and two runs compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.errors import InputError, UsageError
from harness.report.history import difference, drifts, flakes, history_text
from harness.report.store import Entry, Store

from .some import ALL, UNEXPECTED
from .test_files import write_evidence

ENTRY = Entry("r1", "2026-11-30T02:17:00Z", "abc", "a-lane", "a/lane@1", "completes", "consistent", "expected", 1.0,
              ("completes consistent",), {"torch": "2"})  # fmt: skip


def entry(run: int, **changes: object) -> Entry:
    return dataclasses.replace(ENTRY, run=f"r{run}", time=f"2026-11-{run:02}T00:00:00Z", **changes)


def test_a_store_gives_back_what_was_added_and_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Store(path) as store:
        store.add([entry(1), entry(1, cell="b-lane")])
        assert [run[0] for run in store.runs()] == ["r1"]
    with Store(path) as other:
        with Store(path) as store:
            store.add([entry(2, seconds=2.5)])
        assert other.has_run("r2"), "one index for all who look"
    with Store(path) as again:
        assert again.cells("a*") == {"a-lane": [entry(1), entry(2, seconds=2.5)]}
        assert again.run("r1") == [entry(1), entry(1, cell="b-lane")]
        assert list(again.cells(last=1)) == ["a-lane"]
        with pytest.raises(UsageError, match="'r2' is kept already"):
            again.add([entry(2)])


def test_the_index_is_made_anew_for_another_file_and_needs_no_writable_folder(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Store(path) as store:
        store.add([entry(1), entry(2)])
    with Store(path):
        pass
    assert path.with_suffix(".sqlite").exists()
    kept = path.read_text().splitlines()
    path.write_text(kept[1] + "\n")
    with Store(path) as store:
        assert [run[0] for run in store.runs()] == ["r2"]
    path.with_suffix(".sqlite").unlink()
    path.with_suffix(".sqlite").mkdir()  # cannot be opened as a database
    with Store(path) as store:
        assert [run[0] for run in store.runs()] == ["r2"]


def test_a_line_being_written_is_left_for_later_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Store(path) as store:
        store.add([entry(1)])
    whole = path.read_text()
    path.write_text(whole + whole[:20])
    with Store(path) as store:
        assert len(store.run("r1")) == 1
    path.write_text(whole + '{"schema": 1, "run": "x"}\n')
    with pytest.raises(InputError, match=r"history.jsonl:2: is no line of a history"):
        Store(path)


def test_flakes_are_of_one_commit_and_versions() -> None:
    hung = {"verdict": "deadlock", "order": "cyclic", "standing": "unexpected"}
    assert flakes({"a": [entry(1), entry(2, commit="def", **hung)]}) == []
    assert flakes({"a": [entry(1), entry(2, versions={"torch": "3"}, **hung)]}) == []
    assert flakes({"a": [entry(1, commit="abc+"), entry(2, commit="abc+", **hung)]}) == [], "who knows what differed"
    (flake,) = flakes({"a": [entry(1), entry(2, **hung), entry(3)]})
    assert flake.outcomes == {"completes consistent": 2, "deadlock cyclic": 1}
    assert not flake.foreseen
    (flake,) = flakes({"a": [entry(1), entry(2, **hung | {"standing": "expected"})]})
    assert flake.foreseen


def test_drift_needs_runs_before_and_after() -> None:
    slow = [entry(n, seconds=1.0) for n in range(1, 5)] + [entry(n, seconds=2.0) for n in range(5, 8)]
    (drift,) = drifts({"a": slow})
    assert (drift.before, drift.after) == (1.0, 2.0)
    assert drifts({"a": slow[:5]}) == []
    assert drifts({"a": [dataclasses.replace(e, seconds=e.seconds / 100) for e in slow]}) == [], "too small to matter"


def test_the_strip_shows_runs_in_order() -> None:
    cells = {"a-lane": [entry(1), entry(3, verdict="deadlock", order="cyclic", standing="unexpected")]}
    text = history_text(cells, [(f"r{n}", "", "abc", 1) for n in (1, 2, 3)])
    assert "a-lane  c.D  deadlock cyclic, 1.00 s" in text
    assert "a/lane@1" in text, "a flake can be replayed"


def test_a_difference_says_what_changed() -> None:
    before = [entry(1), entry(1, cell="gone"), entry(1, cell="same")]
    after = [entry(2, verdict="deadlock", order="cyclic", standing="unexpected"), entry(2, cell="same", seconds=9.0),
             entry(2, cell="new", versions={"torch": "3"})]  # fmt: skip
    found = difference(before, after)
    assert [(a.cell, a.outcome, b.outcome) for a, b in found.changed] == [
        ("a-lane", "completes consistent", "deadlock cyclic")
    ]
    assert (found.only_before, found.only_after, found.same) == (["gone"], ["new"], 1)
    assert [(b.cell, b.seconds) for _, b in found.slower] == [("same", 9.0)]
    assert found.versions == [("torch", "2", "2 and 3")]
    assert not difference(before, before)


def test_the_commands_keep_show_and_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_SHA", "0123456789abcdef")
    for run, results in (("one", ALL), ("two", [*ALL[2:], dataclasses.replace(UNEXPECTED, verdict="completes")])):
        for result in results:
            write_evidence(tmp_path / run, result)
        done = CliRunner().invoke(main, ["history", "add", run])
        assert done.exit_code == 0, done.output
        assert f"run {run}" in done.output
    assert json.loads(Path("history.jsonl").read_text().splitlines()[0])["commit"] == "0123456789abcdef"
    shown = CliRunner().invoke(main, ["history", "--cell", "*with_fix*"])
    assert shown.exit_code == 0, shown.output
    assert "2 runs" in shown.output
    assert "deadlock cyclic (1), completes cyclic (1)" in shown.output
    assert CliRunner().invoke(main, ["history", "--flakes"]).exit_code == 1
    for pair in (["one", "two"], [str(tmp_path / "one"), "two"]):
        compared = CliRunner().invoke(main, ["diff", *pair])
        assert compared.exit_code == 1
        assert "only in" in compared.output
    assert CliRunner().invoke(main, ["diff", "one", "one"]).exit_code == 0
    wrong = CliRunner().invoke(main, ["diff", "one", "three"])
    assert wrong.exit_code == 2
    assert "run 'three' is no folder of evidence" in wrong.output
    assert CliRunner().invoke(main, ["history", "--store", "none.jsonl"]).exit_code == 2
