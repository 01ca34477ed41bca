"""The swimlane picture and the trace, as data."""

from __future__ import annotations

import json

from harness.report.picture import Arrow, picture
from harness.report.timeline import timeline

from .evidence import INVERSION, RING, evidence
from .some import AS_EXPECTED


def test_marks_run_from_issue_to_completion() -> None:
    drawn = picture(evidence(INVERSION, "lane", AS_EXPECTED))
    names = [(mark.rank, mark.name, mark.done is not None) for mark in drawn.marks]
    assert names == [
        (0, "all_reduce DP #0", True),
        (1, "all_reduce DP #0", True),
        (0, "all_gather DP #1", False),
        (1, "all_gather EDP #0", False),
        (0, "all_gather EDP #0", False),
        (1, "all_gather DP #1", False),
    ]
    assert drawn.marks[2].where == "train.py:11 in step"


def test_the_wait_cycle_goes_through_queues_and_across_ranks() -> None:
    drawn = picture(evidence(INVERSION, "lane", AS_EXPECTED))
    # rank 0 holds EDP behind DP (its 2nd operation behind its 1st); rank 1 the other way round
    assert set(drawn.arrows) == {
        Arrow("queued", (0, 2), (0, 1)),
        Arrow("waits", (0, 1), (1, 2)),
        Arrow("queued", (1, 2), (1, 1)),
        Arrow("waits", (1, 1), (0, 2)),
    }


def test_a_rank_that_never_issued_what_is_needed_is_pointed_at() -> None:
    blocking = INVERSION.replace(" -> a", "").replace(" -> b", "").replace(", wait a", "").replace(", wait b", "")
    issued = [
        line for line in evidence(blocking, "independent", AS_EXPECTED) if line["type"] != "issue" or line["seq"] < 2
    ]
    assert set(picture(issued).arrows) == {
        Arrow("blocked", (0, None), (0, 1)),
        Arrow("waits", (0, 1), (1, None)),
        Arrow("blocked", (1, None), (1, 1)),
        Arrow("waits", (1, 1), (0, None)),
    }


def test_the_first_divergence_is_marked_even_where_nothing_hung() -> None:
    drawn = picture(evidence(INVERSION, "independent", AS_EXPECTED))
    assert drawn.arrows == []
    assert sorted(drawn.parted) == [(0, 1), (1, 1)]


def test_in_a_ring_without_two_disagreeing_ranks_every_link_is_marked() -> None:
    drawn = picture(evidence(RING, "lane", AS_EXPECTED))
    assert sorted(drawn.parted) == [(0, 0), (1, 0), (2, 0)]
    assert len(drawn.arrows) == 6


def test_a_consistent_order_has_no_divergence() -> None:
    first, second = "all_gather DP label=dense -> a", "all_gather EDP label=expert -> b"
    same = INVERSION.replace(f"{second}, {first}", f"{first}, {second}")
    assert picture(evidence(same, "independent", AS_EXPECTED)).parted == []


def test_evidence_without_operations_is_an_empty_picture() -> None:
    first = evidence(INVERSION, "lane", AS_EXPECTED)[:1]
    assert picture(first).to_json() == {"ranks": 4, "groups": [], "texts": [], "marks": [], "arrows": [], "parted": []}


def test_the_trace_pairs_every_begin_with_an_end() -> None:
    trace = timeline(evidence(INVERSION, "lane", AS_EXPECTED))
    assert json.loads(json.dumps(trace)) == trace
    events = trace["traceEvents"]
    begun = {(e["pid"], e["id"]): e["ts"] for e in events if e["ph"] == "b"}
    ended = {(e["pid"], e["id"]): e["ts"] for e in events if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert len(begun) == 6
    assert all(ended[key] > begun[key] for key in begun)
    assert ended[0, "0.0"] - begun[0, "0.0"] == 10
    assert sum(e["args"]["completed"] for e in events if e["ph"] == "b") == 2
    tracks = {(e["pid"], e["tid"]) for e in events if e["ph"] == "b"}
    assert tracks == {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
