"""``harness check`` from the command line: what it says, in words and as JSON, and how it exits."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.record import checked
from harness.record.flight.mesh import Mesh

PUBLIC = Path(__file__).parents[2] / "scenarios" / "public"


def check(*words: Any) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


def objects(*words: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in check("--json", *words).stdout.splitlines()]


def test_the_public_corpus_says_what_it_should() -> None:
    """Every ``expect`` and ``order`` line, through the command."""
    found = {Path(one["path"]).stem: one for one in objects(PUBLIC)}
    assert len(found) == len(list(PUBLIC.glob("*.yaml")))
    for path in PUBLIC.glob("*.yaml"):
        text = path.read_text()
        one = found[path.stem]
        assert f"order: {one['order']}" in text
        for line in text.partition("expect:")[2].partition("order:")[0].strip().splitlines():
            model, _, outcomes = line.strip().rpartition(": ")
            assert one["models"][model]["outcomes"] == sorted(outcomes.strip("[]").split(", ")), (path.stem, model)


def test_clean() -> None:
    result = check(PUBLIC / "seed-fixed.yaml")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].endswith("seed-fixed.yaml: clean")


def test_a_hazard_is_told_verdict_first() -> None:
    result = check(PUBLIC / "seed.yaml")
    assert result.exit_code == 1
    rows = result.output.splitlines()
    assert rows[0].endswith("seed.yaml: order cyclic; deadlock under lane, host_blocking, first_use")
    assert "  rank 0 issues all_gather DP #0 (dense) before all_gather EDP #0 (expert)" in rows
    assert "      seed.yaml:11, then seed.yaml:12" in rows
    assert "  rank 1 has all_gather DP #0 (dense) queued behind all_gather EDP #0 (expert)" in rows
    assert "An order that every rank could follow:" in rows
    assert any("≠" in row for row in rows)


def test_json_has_the_certificate() -> None:
    (one,) = objects(PUBLIC / "seed.yaml")
    assert one["order"] == "cyclic"
    assert set(one["models"]) >= {"independent", "lane", "lanes:2", "host_blocking", "first_use"}
    lane = one["models"]["lane"]
    assert lane["outcomes"] == ["deadlock"]
    assert {step["rank"] for step in lane["certificate"]["cycle"]} == {0, 1}
    assert one["models"]["independent"] == {"outcomes": ["completes"], "certificate": None}


def test_sends_are_judged_buffered_too() -> None:
    (one,) = objects(PUBLIC / "pytorch-172668.yaml")
    assert one["models"]["lane"]["outcomes"] == ["deadlock"]
    assert one["models"]["lane+buffered"]["outcomes"] == ["completes"]


def test_only_some_models() -> None:
    (one,) = objects("--model", "lanes:3", PUBLIC / "nccl-195.yaml")
    assert list(one["models"]) == ["lanes:3"]
    assert check("--model", "lines", PUBLIC / "seed.yaml").exit_code == 2


def test_an_expectation_that_does_not_hold(tmp_path: Path) -> None:
    text = (PUBLIC / "seed-fixed.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("lane: [completes]", "lane: [deadlock]", 1))
    result = check(wrong)
    assert result.exit_code == 1
    assert "(the file expects deadlock)" in result.output


def test_dumps(tmp_path: Path) -> None:
    Mesh(2, 2, 30, inverted=(3, 15)).write(tmp_path)
    result = check(tmp_path)
    assert result.exit_code == 1
    assert "nothing is recorded as incomplete: it did not hang this time" in result.output
    assert "layer0.py:" in result.output
    assert "assumed: host waits are not recorded" in result.output
    (one,) = objects(tmp_path)
    assert one["path"] == str(tmp_path)
    assert one["order"] == "cyclic"
    assert one["models"]["lane"]["certificate"]["cycle"][0]["where"][0][0] == "/job/train/layer0.py"


@pytest.mark.parametrize("content", [b"cos\nsystem\n(S'true'\ntR.", b"", b"\x80\x02]."])
def test_unusable_dumps(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank0").write_bytes(content)
    result = check(tmp_path)
    assert result.exit_code == 2
    assert "rank0" in result.output


def test_unusable_paths(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("program: 1\nworld: 2\nranks:\n  0: [all_reduce W]\n")
    (tmp_path / "dump").write_bytes(pickle.dumps({}))
    for name, word in (("bad.yaml", "bad.yaml:4"), ("nowhere.yaml", "no such file"), ("dump", "accepted are")):
        result = check(tmp_path / name)
        assert result.exit_code == 2
        assert word in result.output
    result = check("--json", PUBLIC / "seed-fixed.yaml", tmp_path / "bad.yaml", PUBLIC / "seed.yaml")
    assert result.exit_code == 2
    assert [("error" in json.loads(line)) for line in result.stdout.splitlines()] == [False, True, False]


@pytest.mark.slow
def test_long_programs_are_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled machine decides for long ones; here for all that have no threads."""
    plain = objects(PUBLIC)
    monkeypatch.setattr(checked, "LONG", 0)
    assert objects(PUBLIC) == plain
