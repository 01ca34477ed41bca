"""The swimlane picture as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.commands.report import _markdown
from harness.report.failure import failure
from harness.report.lanes import lanes, lanes_of
from harness.report.load import load_run

from .evidence import INVERSION, RING, evidence, write
from .some import AS_EXPECTED, UNEXPECTED

HUNG = """\
rank 0       A0   !A1* B0*
rank 1       A0   !B0* A1*

A DP{0,1}  B EDP{0,1}
* in the wait cycle, ! where ranks first part"""


def test_each_rank_has_a_line_in_its_own_order() -> None:
    assert lanes(evidence(INVERSION, "lane", AS_EXPECTED)) == HUNG


def test_a_ring_marks_every_joint() -> None:
    drawn = lanes(evidence(RING, "lane", AS_EXPECTED)).splitlines()
    assert [line.split()[2:] for line in drawn[:3]] == [["!A0*", "C0*"], ["!B0*", "A0*"], ["!C0*", "B0*"]]


def test_a_long_run_shows_its_end_and_a_run_that_passed_its_divergence() -> None:
    many = ", ".join(["all_reduce DP"] * 300)
    long = INVERSION.replace("[all_reduce DP", f"[{many}")
    hung = lanes(evidence(long, "lane", AS_EXPECTED), width=80).splitlines()
    assert hung[0].startswith("rank 0  +")
    assert hung[0].split()[-2:] == ["!A300*", "B0*"]
    assert max(map(len, hung[:2])) <= 80
    later = long.replace("wait b]", f"wait b, {many}]").replace("wait a]", f"wait a, {many}]")
    passed = evidence(later, "independent", AS_EXPECTED)
    done = [
        {"type": "complete", "rank": line["rank"], "seq": line["seq"], "ns": line["ns"] + 5}
        for line in passed
        if line["type"] == "issue"
    ]
    shown = lanes([*passed, *done], width=80).splitlines()
    assert "!A300" in shown[0]
    assert shown[0].rpartition("+")[2].isdigit(), "how many came after"


def test_evidence_that_cannot_be_drawn_is_an_empty_picture(tmp_path: Path) -> None:
    assert lanes(evidence(INVERSION, "lane", AS_EXPECTED)[:1]) == ""
    path = write(tmp_path, INVERSION, "lane", AS_EXPECTED)
    text = path.read_text()
    path.write_text(text.replace('"group": ["DP", [0, 1]]', '"group": 7'))
    assert lanes_of(path) == ""
    assert lanes_of(tmp_path / "nothing.jsonl") == ""


def test_a_failure_and_the_markdown_table_show_it(tmp_path: Path) -> None:
    write(tmp_path, INVERSION, "lane", UNEXPECTED)
    assert HUNG in failure(UNEXPECTED, tmp_path)
    assert "  ```text\n  rank 0       A0   !A1* B0*\n" in _markdown(load_run(tmp_path))


@pytest.mark.parametrize("hostile", ["```", "</script>"])
def test_markdown_pictures_cannot_end_their_block(tmp_path: Path, hostile: str) -> None:
    path = write(tmp_path, INVERSION, "lane", UNEXPECTED)
    path.write_text(path.read_text().replace('["DP",', json.dumps([hostile])[:-1] + ","))
    text = _markdown(load_run(tmp_path))
    assert text.count("```") == 2
