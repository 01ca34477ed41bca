"""The incremental machine and its proofs, fed by hand as a supervisor feeds it."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.model.certificate import Certificate
from harness.model.operation import Group, Operation
from harness.model.progress import Model, Progress
from harness.model.proof import outcome, proof

DP = Group("DP", (0, 1))
EDP = Group("EDP", (0, 1))


def gather(group: Group, label: str = "", n: int = 8) -> list[Operation]:
    return [Operation("all_gather", group, label=label, n=n)]


def inverted(model: str) -> Progress:
    """Two ranks that gather on two groups in opposite orders and then wait, where they get that far."""
    progress = Progress(model, 2)
    for rank, groups in ((0, (DP, EDP)), (1, (EDP, DP))):
        parts = []
        for group in groups:
            if not progress.blocked(rank):
                parts += progress.issue(rank, gather(group))
        if not progress.blocked(rank):
            progress.wait(rank, parts)
    return progress


@pytest.mark.parametrize(
    ("model", "hangs"),
    [("independent", False), ("lane", True), ("lanes:2", False), ("host_blocking", True), ("first_use", True)],
)
def test_an_inversion_hangs_where_something_is_in_order(model: str, hangs: bool) -> None:
    certificate = proof(inverted(model))
    assert (certificate is not None) == hangs
    if certificate is not None:
        assert certificate.outcome == "deadlock"
        assert [step.rank for step in certificate.cycle] in ([0, 1], [1, 0])


def test_the_proof_comes_with_the_event_that_closes_the_cycle_and_not_before() -> None:
    progress = Progress("lane", 2)
    progress.issue(0, gather(DP))
    progress.issue(0, gather(EDP))
    progress.issue(1, gather(EDP))
    assert proof(progress) is None
    progress.issue(1, gather(DP))
    certificate = proof(progress)  # no host waits yet: the two queues alone can never move
    assert certificate is not None
    assert certificate.outcome == "deadlock"
    assert not certificate.blocked


def test_a_cycle_is_proved_while_another_rank_still_runs() -> None:
    progress = Progress("independent", 3)
    world = Group("W", (0, 1, 2))
    progress.wait(0, progress.issue(0, gather(DP)))
    progress.wait(1, progress.issue(1, gather(EDP)))
    assert proof(progress) is not None
    assert not progress.settled()
    progress.issue(2, gather(world))


def test_a_thread_that_may_still_issue_keeps_hope() -> None:
    progress = Progress("independent", 2)
    progress.expect_thread(1, "saver")
    progress.wait(0, progress.issue(0, gather(DP)))
    progress.wait(1, progress.issue(1, gather(EDP)))
    assert proof(progress) is None
    progress.end(1, "saver")
    assert proof(progress) is not None


def test_a_rank_that_ended_is_missing_and_named() -> None:
    progress = Progress("independent", 2)
    progress.wait(0, progress.issue(0, gather(DP)))
    assert proof(progress) is None
    progress.end(1)
    certificate = proof(progress)
    assert certificate is not None
    assert certificate.outcome == "missing"
    (blocked,) = certificate.blocked
    assert (blocked.rank, blocked.absent[0].rank, blocked.absent[0].instead) == (0, 1, "ended")


def test_a_mismatch_is_proved_by_the_second_part_and_shows_both() -> None:
    progress = Progress("independent", 2)
    progress.issue(0, gather(DP, n=4))
    assert proof(progress) is None
    progress.issue(1, gather(DP, n=6))
    certificate = proof(progress)
    assert certificate is not None
    assert certificate.outcome == "mismatch"
    (clash,) = certificate.clashes
    assert "n=4" in clash.left
    assert "n=6" in clash.right


def test_mixed_labels_complete_and_are_reported() -> None:
    progress = Progress("independent", 2)
    progress.issue(0, gather(DP, "p0"))
    progress.issue(1, gather(DP, "p1"))
    changes = progress.drain()
    assert len(changes.instances) == len(changes.mixed) == 1
    progress.end(0)
    progress.end(1)
    assert outcome(progress) == {"completes", "silent_mix"}


def test_what_a_drain_reports_is_reported_once_and_in_order() -> None:
    progress = Progress("lane", 2)
    first = progress.issue(0, gather(DP)) + progress.issue(0, gather(EDP))
    assert progress.drain().started == first[:1]
    progress.issue(1, gather(DP))
    progress.issue(1, gather(EDP))
    changes = progress.drain()
    assert [str(instance.key) for instance in changes.instances] == ["DP #0", "EDP #0"]
    assert not progress.drain().instances


def test_a_buffered_send_completes_alone() -> None:
    progress = Progress("lane+buffered", 2)
    (part,) = progress.issue(0, [Operation("send", DP, peer=1)])
    assert part.complete
    assert progress.wait(0, [part])


def test_host_blocking_replays_a_batch_call_by_call() -> None:
    progress = Progress("host_blocking", 2)
    progress.issue(0, [Operation("recv", DP, peer=1), Operation("send", DP, peer=1)])
    progress.issue(1, [Operation("recv", DP, peer=0), Operation("send", DP, peer=0)])
    certificate = proof(progress)
    assert certificate is not None
    assert certificate.outcome == "deadlock"
    assert all("recv" in blocked.stands_at[0] for blocked in certificate.blocked)


def test_first_use_frees_every_member_at_once() -> None:
    progress = Progress("first_use", 2)
    progress.issue(0, gather(DP))
    assert progress.blocked(0)
    progress.issue(1, gather(DP))
    assert not progress.blocked(0)
    assert not progress.blocked(1)
    assert [thread.rank for thread in progress.drain().released] == [0]


def test_a_blocked_thread_issues_nothing() -> None:
    progress = Progress("independent", 2)
    progress.wait(0, progress.issue(0, gather(DP)))
    with pytest.raises(ValueError, match=r"rank 0, thread main.*blocked"):
        progress.issue(0, gather(DP))


@pytest.mark.parametrize("text", ["independent", "lane", "lanes:3", "host_blocking+buffered", "first_use"])
def test_models_round_trip(text: str) -> None:
    assert str(Model.parse(text)) == text


@pytest.mark.parametrize("text", ["", "lanes:0", "lanes", "Lane", "lane+", "lane+buffered+buffered", "xccl"])
def test_unknown_models_are_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(UsageError, match="lanes:K"):
        Model.parse(text)


@pytest.mark.parametrize("model", ["lane", "host_blocking", "first_use"])
def test_certificates_survive_json(model: str) -> None:
    certificate = proof(inverted(model))
    assert certificate is not None
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_a_detector_without_lane_edges_misses_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking it on purpose: with queued parts taken for startable, the same events prove nothing."""
    from harness.model import proof as module

    monkeypatch.setattr(module._Hope, "_instance", lambda self, instance: True)
    assert proof(inverted("lane")) is None
