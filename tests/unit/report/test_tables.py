"""What the terminal and a pull request are shown."""

from __future__ import annotations

import dataclasses

from harness.matrix.result import CellResult
from harness.report.markdown import markdown
from harness.report.terminal import reasons, summary, table

from .some import ALL, AS_EXPECTED, UNEXPECTED


def test_a_row_holds_every_backend_and_variant_of_a_case() -> None:
    assert table(ALL, color=False).splitlines() == [
        " scenario                   lane           lane             nccl        nccl",
        "   case                     installed      with_fix         installed   with_fix",
        "──────────────────────────────────────────────────────────────────────────────────",
        " zero3",
        "   4 ranks, dp_edp, split   deadlock ✓     deadlock ✗       skipped -   skipped ✗",
        "                            cyclic 0.25s   cyclic 0.25s",
        "                                           want completes",
        "                                             consistent",
    ]


def test_other_cases_are_other_rows() -> None:
    wider = dataclasses.replace(AS_EXPECTED, cell=dataclasses.replace(AS_EXPECTED.cell, world=8, params=(("n", 3),)))
    text = table([AS_EXPECTED, wider], color=False)
    assert "4 ranks, dp_edp, split " in text
    assert "8 ranks, dp_edp, split, n=3" in text
    assert text.count("zero3") == 1


def test_only_a_terminal_gets_colours() -> None:
    assert "\x1b[" not in table(ALL, color=False)
    assert "\x1b[" in table(ALL, color=True)


def test_a_terminal_without_unicode_gets_words() -> None:
    text = table(ALL, color=False, ascii_only=True)
    assert "deadlock ok" in text
    assert "deadlock NO" in text
    assert text.isascii()


def test_the_summary_counts_every_standing() -> None:
    assert summary(ALL) == "4 cells: 1 as expected, 1 unexpected, 1 skipped as foreseen, 1 skipped, unforeseen"
    assert summary([AS_EXPECTED]) == "1 cell: 1 as expected"


def test_a_reason_for_skipping_is_given_once() -> None:
    assert reasons(ALL) == ["skipped 2 on nccl: no CUDA device"]


def test_markdown_carries_versions_hardware_and_how_to_replay() -> None:
    text = markdown(ALL, {"torch": "2.13.0"}, {"cpu": "A|B", "cores": 2}, ["lane: a model"])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {7}
    assert "| zero3 | 4 ranks, dp_edp, split | ✅ deadlock<br>cyclic, 0.25 s | ❌ deadlock" in rows[2]
    assert "- lane: a model\n- skipped 2 on nccl: no CUDA device\n- versions: torch 2.13.0\n" in text
    assert "- hardware: cpu A\\|B, cores 2\n" in text
    assert f"- `harness replay {UNEXPECTED.cell.token}`: deadlock (cyclic), want completes consistent" in text


def test_results_survive_json() -> None:
    assert [CellResult.from_json(r.to_json()) for r in ALL] == ALL
