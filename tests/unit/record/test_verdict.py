"""Verdicts from lines alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.backends.spec import BackendSpec
from harness.errors import InputError
from harness.model.operation import Group, Operation
from harness.record import lines
from harness.record.evidence import Evidence, read
from harness.record.verdict import verdict
from harness.world.messages import Events, Finished, Frame, Issue, Wait
from harness.world.running import SafeSink
from harness.world.supervisor import Supervisor

LANE = BackendSpec("lane", "gloo", "lane", True)
GLOO = BackendSpec("gloo", "gloo", "independent", False)
A, B = Group("a", (0, 1)), Group("b", (0, 1))
FINE = {"ok": True}


def gather(group: Group, label: str = "") -> Operation:
    return Operation("all_gather", group, label=label)


def evidence(
    spec: BackendSpec, programs: list[list[Any]], outcomes: list[dict[str, Any]], timed_out: bool = False
) -> list[dict[str, Any]]:
    """Lines of a run in which each rank issues operations, waits where its program says ``None``, and ends."""
    found: list[dict[str, Any]] = []
    supervisor = Supervisor(len(programs), 1, spec, sink=found.append)
    for rank, program in enumerate(programs):
        seq = 0
        for step in program:
            if step is None:
                supervisor.handle(rank, Wait(1, "main", tuple(range(seq)), (), (), 0))
            elif step == "end":
                supervisor.handle(rank, Finished(1, outcomes[rank]["ok"], b"", 0))
            else:
                supervisor.handle(rank, Issue(1, seq, "main", (step,), (), 0))
                seq += 1
    supervisor.look()
    supervisor.write()
    found += [{"type": "rank", "rank": rank, **outcome} for rank, outcome in enumerate(outcomes)]
    found.append(lines.end(0.1, timed_out))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def failed(kind: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "error": {"type": kind, "message": "so it was", "traceback": ""}, **more}


def test_completes() -> None:
    found = verdict(evidence(LANE, [[gather(A), None, "end"]] * 2, [FINE] * 2))
    assert (found.verdict, found.order, found.mixed) == ("completes", "consistent", False)


def test_inverted_order_is_cyclic_though_it_completes() -> None:
    programs = [[gather(A), gather(B), None, "end"], [gather(B), gather(A), None, "end"]]
    found = verdict(evidence(GLOO, programs, [FINE] * 2))
    assert (found.verdict, found.order) == ("completes", "cyclic")


def test_proven_deadlock() -> None:
    programs = [[gather(A), gather(B), None], [gather(B), gather(A), None]]
    found = verdict(evidence(LANE, programs, [failed("harness.errors.DeadlockError")] * 2))
    assert (found.verdict, found.order) == ("deadlock", "cyclic")
    assert found.certificate is not None
    assert {step.rank for step in found.certificate.cycle} == {0, 1}
    assert "wait for each other" in found.explanation


def test_order_of_a_run_cut_short_is_unknown() -> None:
    found = verdict(evidence(LANE, [[gather(A), None], [gather(B), None]], [failed("DeadlockError")] * 2))
    assert (found.verdict, found.order) == ("deadlock", "unknown")


def test_missing_after_a_rank_that_returned() -> None:
    found = verdict(evidence(LANE, [[gather(A), None], ["end"]], [failed("MissingRankError"), FINE]))
    assert found.verdict == "missing"


def test_missing_after_a_rank_that_raised_is_that_ranks_crash() -> None:
    outcomes = [failed("MissingRankError"), failed("ValueError")]
    found = verdict(evidence(LANE, [[gather(A), None], ["end"]], outcomes))
    assert (found.verdict, found.ranks) == ("crashed", (1,))
    assert "rank 1: ValueError: so it was" in found.explanation


def test_mismatch() -> None:
    programs = [[gather(A), None], [Operation("all_reduce", A), None]]
    assert verdict(evidence(LANE, programs, [failed("MismatchError")] * 2)).verdict == "mismatch"


def test_mixed_labels_are_a_silent_mix_with_each_ranks_label() -> None:
    programs = [[gather(A, label), None, "end"] for label in ("expert 0", "expert 1")]
    found = verdict(evidence(LANE, programs, [FINE] * 2))
    assert (found.verdict, found.mixed) == ("silent_mix", True)
    assert "rank 0 expert 0, rank 1 expert 1" in found.explanation


def test_wrong_values() -> None:
    programs = [[gather(A), None, "end"]] * 2
    found = verdict(evidence(LANE, programs, [FINE, failed("harness.errors.WrongValuesError")]))
    assert (found.verdict, found.ranks) == ("wrong_values", (1,))


def test_dead_rank_is_named_with_its_signal() -> None:
    outcomes = [failed("RankDiedError"), failed("died", exit="signal 9")]
    found = verdict(evidence(LANE, [[gather(A), None], []], outcomes))
    assert (found.verdict, found.ranks) == ("crashed", (1,))
    assert "signal 9" in found.explanation


def test_limit_without_proof_is_a_timeout() -> None:
    outcomes = [failed("StoppedError"), failed("StoppedError")]
    assert verdict(evidence(LANE, [[gather(A), None], []], outcomes, timed_out=True)).verdict == "timeout"


def test_proof_about_a_real_engine_that_completed_counts_for_nothing() -> None:
    """Gloo let both ranks through; then the model is wrong about gloo, not gloo about itself."""
    found = verdict(evidence(GLOO, [[gather(A), None], [gather(B), None]], [FINE] * 2))
    assert found.verdict == "completes"


def test_proof_about_a_real_engine_that_was_stopped() -> None:
    found = verdict(evidence(GLOO, [[gather(A), None], [gather(B), None]], [failed("stopped", exit="stopped")] * 2))
    assert found.verdict == "deadlock"


def test_ranks_that_end_while_a_proof_stands_are_told_beside_it() -> None:
    outcomes = [failed("stopped", exit="stopped", culprit=False), failed("died", exit="signal 6", culprit=False)]
    found = verdict(evidence(GLOO, [[gather(A), None], [gather(B), None]], outcomes))
    assert (found.verdict, found.ranks) == ("deadlock", ())
    assert found.explanation.endswith("there ended: rank 1 (signal 6)")


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_evidence_that_breaks_off_is_unknown(keep: int) -> None:
    whole = evidence(LANE, [[gather(A), None, "end"]] * 2, [FINE] * 2)
    assert verdict(whole[:keep]).verdict == "unknown"


def test_checker_that_crashes_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evidence(LANE, [[gather(A), None, "end"]] * 2, [FINE] * 2)
    monkeypatch.setattr("harness.record.verdict.order_of", lambda histories: 1 / 0)
    found = verdict(whole)
    assert (found.verdict, found.order) == ("unknown", "unknown")
    assert "ZeroDivisionError" in found.explanation


def test_lines_that_are_no_evidence_are_unknown() -> None:
    assert verdict([{"type": "world"}, {"type": "issue"}, {"type": "end"}]).verdict == "unknown"


def test_file_and_lines_are_the_same(tmp_path: Path) -> None:
    """Evidence is written as text made of known parts; it reads as the lines that any other sink gets."""
    path = tmp_path / "cell.jsonl"
    found: list[dict[str, Any]] = []
    with Evidence(path, {"scenario": "x"}, {"torch": "2"}, {}) as file:
        supervisors = [Supervisor(2, 1, LANE, sink=sink) for sink in (found.append, SafeSink(file.write))]
        for supervisor in supervisors:
            speak(supervisor)
            supervisor.write()
    assert len(found) == 1 + 4 * 3 + 4 + 2
    assert read(path)[1:] == json.loads(json.dumps(found))


def speak(supervisor: Supervisor) -> None:
    """Two ranks, two calls each, under names that JSON must quote."""
    where = (Frame('fi"le.py', 3, "body"),)
    for rank in range(2):
        supervisor.handle(rank, Events(1, (("o", 0, gather(A, 'la"bel')), ("f", 1, where), ("n", "note", [1], 4))))
    for seq in range(2):
        for rank in range(2):
            issue = ("i", seq, 'odd "name"', (0,), 1, 5)
            wait = ("w", 'odd "name"', (seq,), 1, ("other",), 6)
            supervisor.handle(rank, Events(1, (issue, wait, ("c", seq, 7))))


def test_last_line_may_break_off(tmp_path: Path) -> None:
    path = tmp_path / "cell.jsonl"
    with Evidence(path, {}, {}, {}) as file:
        file.write({"type": "end", "seconds": 1, "timed_out": False})
    path.write_text(path.read_text() + '{"type":"ra')
    assert [line["type"] for line in read(path)] == ["cell", "end"]


@pytest.mark.parametrize(("text", "message"), [("nonsense\n{}\n", ":1: is no JSON"), ("[]\n", ":1: is no line")])
def test_other_files_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cell.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read(path)


def test_other_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.jsonl"
    path.write_text('{"type":"cell","schema":99}\n')
    with pytest.raises(InputError, match="schema 99"):
        read(path)
