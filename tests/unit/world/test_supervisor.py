"""The supervisor as a pure function of messages: grants, releases, proofs, and what a real engine may contradict."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from harness import errors
from harness.backends.spec import BackendSpec
from harness.model.operation import Group, Operation
from harness.world.messages import (
    Events,
    Finished,
    Grant,
    Issue,
    Probe,
    Release,
    Sent,
    Stop,
    ThreadEnd,
    ThreadStart,
    Wait,
)
from harness.world.supervisor import Supervisor

A, B = Group("a", (0, 1)), Group("b", (0, 1))


def spec(model: str) -> BackendSpec:
    return BackendSpec(model, "gloo", model, True)


GLOO = BackendSpec("gloo", "gloo", "independent", False)


def gather(group: Group) -> Operation:
    return Operation("all_gather", group)


class Ranks:
    """Speaks to a supervisor as ranks would; keeps what it wrote."""

    def __init__(self, backend: BackendSpec, world: int = 2, settle: bool = False) -> None:
        self.lines: list[dict[str, Any]] = []
        self.supervisor = Supervisor(world, 1, backend, sink=self.lines.append, settle=settle)
        self._seqs = [0] * world

    def issue(self, rank: int, *ops: Operation, thread: str = "main") -> list[tuple[int, Any]]:
        seq = self._seqs[rank]
        self._seqs[rank] += len(ops)
        return self.supervisor.handle(rank, Issue(1, seq, thread, ops, (), 0))

    def wait(self, rank: int, *seqs: int, thread: str = "main", others: tuple[str, ...] = ()) -> list[tuple[int, Any]]:
        return self.supervisor.handle(rank, Wait(1, thread, seqs, (), others, 0))

    def finish(self, rank: int, ok: bool = True) -> list[tuple[int, Any]]:
        return self.supervisor.handle(rank, Finished(1, ok, b"", 0))


def stops(out: list[tuple[int, Any]]) -> dict[int, BaseException]:
    return {rank: pickle.loads(message.error) for rank, message in out if isinstance(message, Stop)}


# --- grants -------------------------------------------------------------------------------------------------


def test_grant_once_all_parts_are_there() -> None:
    ranks = Ranks(spec("independent"))
    assert ranks.issue(0, gather(A)) == []
    assert ranks.issue(1, gather(A)) == [(0, Grant(1, (0,))), (1, Grant(1, (0,)))]


def test_lane_grants_what_was_queued_in_the_same_order_everywhere() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    ranks.issue(0, gather(B))
    ranks.issue(0, gather(A))
    assert ranks.issue(1, gather(A)) == [(0, Grant(1, (0,))), (1, Grant(1, (0,)))]
    assert ranks.issue(1, gather(B)) == [(0, Grant(1, (1,))), (1, Grant(1, (1,)))]
    assert ranks.issue(1, gather(A)) == [(0, Grant(1, (2,))), (1, Grant(1, (2,)))]


def test_messages_of_other_epochs_are_dropped() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    assert ranks.supervisor.handle(1, Issue(0, 0, "main", (gather(A),), (), 0)) == []
    assert ranks.supervisor.handle(1, Issue(2, 0, "main", (gather(A),), (), 0)) == []


def test_real_engine_is_granted_nothing() -> None:
    ranks = Ranks(GLOO)
    assert ranks.issue(0, gather(A)) == ranks.issue(1, gather(A)) == []


def test_mismatched_parts_are_never_granted() -> None:
    ranks = Ranks(spec("independent"))
    ranks.issue(0, gather(A))
    out = ranks.issue(1, Operation("all_reduce", A))
    assert not [message for _, message in out if isinstance(message, Grant)]
    assert {type(error) for error in stops(out).values()} == {errors.MismatchError}


def test_buffered_send_lets_its_host_go_and_moves_later() -> None:
    ranks = Ranks(spec("lane+buffered"))
    assert ranks.issue(0, Operation("send", A, peer=1)) == [(0, Sent(1, (0,)))]
    assert ranks.wait(0, 0) == []
    assert ranks.issue(1, Operation("recv", A, peer=0)) == [(0, Grant(1, (0,))), (1, Grant(1, (0,)))]


def test_first_use_releases_every_issue_once() -> None:
    ranks = Ranks(spec("first_use"))
    assert ranks.issue(0, gather(A)) == []
    out = ranks.issue(1, gather(A))
    assert sorted(out, key=str) == sorted(
        [(0, Grant(1, (0,))), (1, Grant(1, (0,))), (0, Release(1, "main")), (1, Release(1, "main"))], key=str
    )
    assert ranks.issue(0, gather(A)) == [(0, Release(1, "main"))]


def test_tell_and_hear() -> None:
    ranks = Ranks(spec("lane"))
    assert ranks.supervisor.handle(1, Events(1, (("h", "main", 0, 0, 0),))) == []
    assert ranks.supervisor.handle(0, Events(1, (("t", "main", 1, 0),))) == [(1, Release(1, "main"))]
    assert ranks.supervisor.handle(0, Events(1, (("t", "main", 1, 0),))) == []
    assert ranks.supervisor.handle(1, Events(1, (("h", "main", 0, 0, 0),))) == [(1, Release(1, "main"))]


# --- proofs -------------------------------------------------------------------------------------------------


def invert(ranks: Ranks) -> list[tuple[int, Any]]:
    for rank, order in enumerate(((A, B), (B, A))):
        for group in order:
            ranks.issue(rank, gather(group))
    ranks.wait(0, 0, 1)
    return ranks.wait(1, 0, 1)


def test_deadlock_stops_every_rank_with_its_certificate() -> None:
    ranks = Ranks(spec("lane"))
    invert(ranks)
    error = ranks.supervisor.error
    assert isinstance(error, errors.DeadlockError)
    assert error.certificate == ranks.supervisor.certificate
    assert error.certificate is not None
    assert {step.rank for step in error.certificate.cycle} == {0, 1}


def test_stop_goes_to_all_and_nothing_is_granted_after() -> None:
    ranks = Ranks(spec("lane"), world=3)
    for rank, order in enumerate(((A, B), (B, A))):
        for group in order:
            ranks.issue(rank, gather(group))
    assert set(stops(ranks.wait(0, 0, 1))) == {0, 1, 2}
    assert ranks.issue(1, gather(A)) == []
    assert ranks.finish(2) == []


def test_proof_is_drawn_before_everything_is_blocked_unless_settling() -> None:
    """Rank 1 still runs, but nothing it could do would help rank 0."""
    for settle, proved in ((False, True), (True, False)):
        ranks = Ranks(spec("lane"), settle=settle)
        for rank, order in enumerate(((A, B), (B, A))):
            for group in order:
                ranks.issue(rank, gather(group))
        ranks.wait(0, 0)
        assert (ranks.supervisor.certificate is not None) is proved
        if settle:
            ranks.wait(1, 0)
            assert ranks.supervisor.certificate is not None


def test_rank_that_returned_is_missed() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    assert {type(error) for error in stops(ranks.finish(1)).values()} == {errors.MissingRankError}


def test_thread_that_may_still_issue_holds_the_proof_until_it_ends() -> None:
    ranks = Ranks(spec("lane"))
    ranks.supervisor.handle(1, ThreadStart(1, "saver", 0))
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(1, gather(B))
    ranks.wait(1, 0)
    assert ranks.supervisor.certificate is None
    ranks.supervisor.handle(1, ThreadEnd(1, "saver", 0))
    assert ranks.supervisor.certificate is not None


def test_threads_named_by_a_wait_hold_the_proof() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(1, gather(B))
    ranks.wait(1, 0, others=("saver",))
    assert ranks.supervisor.certificate is None
    assert ranks.issue(1, gather(A), thread="saver") == []  # queued behind B
    ranks.wait(1, 1, thread="saver")
    assert ranks.supervisor.certificate is not None


def test_dead_rank_releases_the_others() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    found = stops(ranks.supervisor.rank_ended(1, "signal 9"))
    assert set(found) == {0}
    assert isinstance(found[0], errors.RankDiedError)
    assert "rank 1" in str(found[0])
    assert "signal 9" in str(found[0])


def test_interrupt_stops_once() -> None:
    ranks = Ranks(spec("lane"))
    assert set(stops(ranks.supervisor.interrupt(errors.StoppedError("too slow")))) == {0, 1}
    assert ranks.supervisor.interrupt(errors.StoppedError("again")) == []


def test_wait_that_ran_out_of_its_own_time_lets_the_thread_go_on() -> None:
    ranks = Ranks(spec("independent"))
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(0, gather(B))
    assert ranks.issue(1, gather(A)) == [(0, Grant(1, (0,))), (1, Grant(1, (0,)))]


# --- real engines -------------------------------------------------------------------------------------------


def test_events_that_overtake_the_model_are_kept_until_it_catches_up() -> None:
    """Rank 0's next event may arrive before rank 1's part that let it go on."""
    ranks = Ranks(GLOO)
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(0, gather(B))
    ranks.issue(1, gather(A))
    ranks.issue(1, gather(B))
    assert not ranks.supervisor.progress.instances


def test_engine_ahead_of_the_model_is_believed() -> None:
    """A gather's sender is done on gloo before the others have come; the model would have it wait."""
    ranks = Ranks(GLOO)
    rooted = Operation("gather", A, root=1)
    ranks.issue(0, rooted)
    ranks.wait(0, 0)
    ranks.issue(0, Operation("send", A, peer=1))
    ranks.issue(1, Operation("recv", A, peer=0))
    ranks.wait(1, 0)
    assert ranks.supervisor.look() == [(0, Probe(1)), (1, Probe(1))]
    assert ranks.supervisor.certificate is None
    ranks.issue(1, rooted)
    assert not ranks.supervisor.progress.instances


def test_proof_about_a_real_engine_is_only_noted_and_taken_back_by_a_later_event() -> None:
    ranks = Ranks(GLOO)
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(1, gather(B))
    ranks.wait(1, 0)
    assert stops(ranks.supervisor.look()) == {}
    assert ranks.supervisor.certificate is not None
    ranks.issue(0, gather(B))  # it went on after all
    ranks.supervisor.look()
    assert ranks.supervisor.certificate is None
    ranks.supervisor.write()
    found = [line["certificate"] for line in ranks.lines if line["type"] == "certificate"]
    assert [proof is None for proof in found] == [False, True]


@pytest.mark.parametrize(("backend", "tainted"), [(GLOO, True), (spec("lane"), False)])
def test_half_met_operations_taint_a_real_engine(backend: BackendSpec, tainted: bool) -> None:
    ranks = Ranks(backend)
    ranks.issue(0, gather(A))
    assert ranks.supervisor.tainted is tainted


def test_evidence_is_written_after_the_answer() -> None:
    ranks = Ranks(spec("lane"))
    ranks.issue(0, gather(A))
    ranks.issue(1, gather(A))
    assert (ranks.lines, ranks.supervisor.unwritten) == ([], 5)
    ranks.supervisor.write()
    assert [line["type"] for line in ranks.lines] == ["world", "issue", "issue", "grant", "grant"]
    assert ranks.supervisor.unwritten == 0


def test_what_comes_after_an_interrupt_changes_no_proof() -> None:
    """Killed one after the other, ranks of a real engine report that their peers are gone."""
    ranks = Ranks(GLOO)
    ranks.issue(0, gather(A))
    ranks.wait(0, 0)
    ranks.issue(1, gather(B))
    ranks.wait(1, 0)
    ranks.supervisor.look()
    proof = ranks.supervisor.certificate
    ranks.supervisor.interrupt(errors.StoppedError("killed"))
    ranks.finish(0, ok=False)
    assert ranks.supervisor.look() == []
    assert ranks.supervisor.certificate is proof


@pytest.mark.parametrize("backend", [GLOO, spec("lane")], ids=lambda found: found.name)
def test_what_is_kept_does_not_grow_with_a_run_that_goes_on(backend: BackendSpec) -> None:
    """A job may issue for days: of operations that are complete, only their numbers go on counting."""
    supervisor = Supervisor(2, 1, backend, sink=None)
    for seq in range(200):
        for rank in range(2):
            supervisor.handle(rank, Issue(1, seq, "main", (gather(A),), (), 0))
            supervisor.handle(rank, Wait(1, "main", (seq,), (), (), 0))
    assert [len(rank.parts) for rank in supervisor._ranks] == [0, 0]
    assert not supervisor.progress.instances
    assert supervisor.unwritten <= 1
