"""What bodies noted, told beside a proof."""

from __future__ import annotations

from harness.model.certificate import Certificate, Step
from harness.model.spans import bounds, spans
from harness.record.notes import context


def test_runs_of_three_or_more_are_spans() -> None:
    assert spans([5, 3, 2, 1, 9, 8]) == "1-3,5,8,9"
    assert bounds("1-3,5,8,9") == [(1, 3), (5, 5), (8, 8), (9, 9)]


def test_the_last_notes_before_the_proof_are_told_for_the_ranks_of_the_cycle() -> None:
    steps = (
        Step(0, "main", "all_gather EDP #0 (ds_id 7)", "queued", "all_gather DP #0 (ds_id 0-2)"),
        Step(1, "main", "all_gather DP #0 (ds_id 0-2)", "queued", "all_gather EDP #0 (ds_id 7)"),
    )
    proof = Certificate("deadlock", "lane", cycle=steps)
    evidence = [
        {"type": "note", "rank": 0, "name": "parameters", "value": {"0": "a.w", "2": "b.w", "3": "c.w", "7": "e.w"}},
        {"type": "note", "rank": 0, "name": "step", "value": 1},
        {"type": "note", "rank": 0, "name": "step", "value": 2},
        {"type": "note", "rank": 0, "name": "module", "value": "layers.0"},
        {"type": "note", "rank": 2, "name": "step", "value": 2},
        {"type": "certificate", "certificate": None},
        {"type": "note", "rank": 0, "name": "step", "value": 3},
    ]
    text = context(evidence, proof)
    assert "rank 0: step 2, module layers.0" in text
    assert "rank 2" not in text
    assert [line.strip() for line in text.splitlines() if ".w" in line] == ["e.w", "a.w", "b.w"]


def test_without_notes_nothing_is_added() -> None:
    assert context([], Certificate("deadlock", "lane")) == ""
