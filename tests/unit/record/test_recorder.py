"""The rank's side of the record, driven by hand: what it sends, when it blocks, and what raises where."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.backends.spec import BackendSpec
from harness.errors import DeadlockError, HarnessError, StoppedError
from harness.model.operation import Group, Operation
from harness.record import current, label, unrecorded
from harness.record import recorder as module
from harness.record.recorder import Recorder
from harness.record.threads import ThreadNames, may_issue
from harness.record.ticket import Ticket
from harness.world.messages import Events, Grant, Probe, Release, Sent, Stop

LANE = BackendSpec("lane", "gloo", "lane", True)
GLOO = BackendSpec("gloo", "gloo", "independent", False)
GATHER = Operation("all_gather", Group("a", (0, 1)))


class Sender:
    """Keeps what a recorder sends, and lets a test wait for it."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self._came = threading.Condition()

    def __call__(self, message: Events) -> None:
        with self._came:
            self.records += message.records
            self._came.notify_all()

    def until(self, kind: str, count: int = 1) -> list[tuple[Any, ...]]:
        """The records of that kind, once there are so many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.of(kind)) >= count, 5), (kind, self.records)
            return self.of(kind)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [record for record in self.records if record[0] == kind]


def begun(spec: BackendSpec = LANE) -> tuple[Recorder, Sender]:
    sender = Sender()
    recorder = Recorder(sender, 0, 2)
    recorder.begin(1, spec)
    return recorder, sender


def issue(recorder: Recorder, start: Callable[[], Any] | None = lambda: "work") -> Ticket:
    ticket = Ticket(start)
    recorder.issue((recorder.operation(GATHER),), (ticket,))
    return ticket


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def stop(recorder: Recorder, epoch: int = 1) -> None:
    recorder.on_message(Stop(epoch, pickle.dumps(DeadlockError("stuck"))))


# --- numbers and stacks -------------------------------------------------------------------------------------


def test_operations_and_stacks_travel_once() -> None:
    recorder, sender = begun()
    for _ in range(3):
        issue(recorder)
    assert len(sender.of("o")) == len(sender.of("f")) == 1
    assert [record[1] for record in sender.of("i")] == [0, 1, 2]


def test_stack_begins_at_the_caller() -> None:
    recorder, sender = begun()
    issue(recorder)
    frames = sender.of("f")[0][2]
    assert frames[0].file == __file__
    assert frames[0].function == "test_stack_begins_at_the_caller"


def test_new_epoch_counts_anew() -> None:
    recorder, sender = begun()
    issue(recorder)
    recorder.begin(2, LANE)
    assert issue(recorder).seq == 0
    assert len(sender.of("o")) == 2


# --- grants -------------------------------------------------------------------------------------------------


def test_granted_operation_starts_in_the_listener_and_lets_the_waiting_thread_go(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    started_in: list[str] = []
    ticket = issue(recorder, lambda: started_in.append(threading.current_thread().name))
    waiting = pool.submit(recorder.wait, (ticket,))
    sender.until("w")
    assert not waiting.done()
    recorder.on_message(Grant(1, (0,)))
    assert waiting.result(5) is True
    assert started_in == [threading.current_thread().name]


def test_operation_starts_though_nobody_waits() -> None:
    recorder, _ = begun()
    ticket = issue(recorder)
    recorder.end()
    recorder.on_message(Grant(1, (0,)))
    assert ticket.work == "work"


def test_grant_of_an_old_epoch_starts_nothing() -> None:
    recorder, _ = begun()
    ticket = issue(recorder)
    recorder.begin(2, LANE)
    recorder.on_message(Grant(1, (0,)))
    assert ticket.work is None


def test_what_start_raises_is_raised_where_it_is_waited_for() -> None:
    recorder, _ = begun()

    def refuse() -> None:
        raise TypeError("no such dtype")

    ticket = issue(recorder, refuse)
    recorder.on_message(Grant(1, (0,)))
    with pytest.raises(TypeError, match="no such dtype"):
        recorder.wait((ticket,))


def test_two_threads_may_wait_for_one_operation(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    ticket = issue(recorder)
    waiting = [pool.submit(recorder.wait, (ticket,)) for _ in range(2)]
    sender.until("w", 2)
    recorder.on_message(Grant(1, (0,)))
    assert [future.result(5) for future in waiting] == [True, True]


def test_wait_with_a_time_limit_runs_out() -> None:
    recorder, _ = begun()
    assert recorder.wait((issue(recorder),), 0.01) is False


def test_buffered_send_lets_its_host_go(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    ticket = issue(recorder)
    waiting = pool.submit(recorder.wait, (ticket,))
    sender.until("w")
    recorder.on_message(Sent(1, (0,)))
    assert waiting.result(5) is True
    assert ticket.work is None
    recorder.on_message(Grant(1, (0,)))
    assert ticket.work == "work"


def test_release_wakes_the_thread_it_names(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    hearing = pool.submit(recorder.hear, 1)
    thread = sender.until("h")[0][1]
    recorder.on_message(Release(1, thread))
    hearing.result(5)


# --- stops --------------------------------------------------------------------------------------------------


def test_stop_raises_in_every_blocked_thread_and_in_every_later_call(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    tickets = [issue(recorder) for _ in range(2)]
    blocked = [pool.submit(recorder.wait, (ticket,)) for ticket in tickets]
    blocked += [pool.submit(recorder.hear, 1)]
    sender.until("w", 2)
    sender.until("h")
    stop(recorder)
    found = [future.exception(5) for future in blocked]
    assert [type(error) for error in found] == [DeadlockError] * 3
    assert len({id(error) for error in found}) == 3, "each thread needs a traceback of its own"
    for call in (lambda: issue(recorder), lambda: recorder.hear(1), lambda: recorder.wait((tickets[0],))):
        with pytest.raises(DeadlockError):
            call()
    recorder.begin(2, LANE)
    issue(recorder)


def test_stop_of_a_task_that_has_not_begun_here_is_kept() -> None:
    """Another rank may be done for before this one has taken up the task."""
    recorder, _ = begun()
    stop(recorder, epoch=2)
    issue(recorder)
    recorder.begin(2, LANE)
    with pytest.raises(DeadlockError):
        issue(recorder)


def test_stop_of_an_old_epoch_is_dropped() -> None:
    recorder, _ = begun()
    recorder.begin(2, LANE)
    stop(recorder, epoch=1)
    issue(recorder)


def test_operation_granted_before_the_stop_is_still_waited_for() -> None:
    recorder, _ = begun()
    ticket = issue(recorder)
    recorder.on_message(Grant(1, (0,)))
    stop(recorder)
    recorder.check_tickets((ticket,))


# --- real engines -------------------------------------------------------------------------------------------


def test_real_engine_holds_events_while_they_come_thick_and_sends_them_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HOLD_NS", 10**12)
    recorder, sender = begun(GLOO)
    number = recorder.operation(GATHER)
    for _ in range(3):
        recorder.call(number)
    assert len(sender.of("s")) == 1, "the first is new"
    recorder.on_message(Probe(1))
    assert len(sender.of("s")) == 3


def test_real_engine_holds_nothing_long() -> None:
    recorder, sender = begun(GLOO)
    number = recorder.operation(GATHER)
    for count in range(1, 4):
        recorder._sent_ns = 0
        recorder.call(number)
        assert len(sender.of("s")) == count


# --- labels, threads ----------------------------------------------------------------------------------------


def test_labels_nest_and_are_a_threads_own(pool: ThreadPoolExecutor) -> None:
    recorder, _ = begun()
    with recorder.labelled("dense"):
        with recorder.labelled("expert"):
            assert recorder.label == "expert"
            assert pool.submit(lambda: recorder.label).result(5) == ""
        assert recorder.label == "dense"
    assert recorder.label == ""


def test_unrecorded_is_a_threads_own(pool: ThreadPoolExecutor) -> None:
    recorder, _ = begun()
    with recorder.unrecorded():
        assert not recorder.recording
        assert pool.submit(lambda: recorder.recording).result(5)
    assert recorder.recording


def test_wait_names_a_thread_that_may_still_issue_and_says_when_it_ended(pool: ThreadPoolExecutor) -> None:
    recorder, sender = begun()
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="saver")
    thread.start()
    ticket = issue(recorder)
    waiting = pool.submit(recorder.wait, (ticket,))
    try:
        assert "saver" in sender.until("w")[0][4]
        leave.set()
        assert ("e", "saver") in [record[:2] for record in sender.until("e")]
    finally:
        leave.set()
        thread.join()
        stop(recorder)
    assert isinstance(waiting.exception(5), DeadlockError)


def test_parked_workers_may_not_issue(pool: ThreadPoolExecutor) -> None:
    """A pool's idle thread acts only on what another thread hands it."""
    before = {thread.ident for thread in may_issue(frozenset())}
    pool.submit(int).result(5)
    parked = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    deadline = threading.Event()
    for _ in range(200):
        if not {t.ident for t in may_issue(frozenset())} & {t.ident for t in parked}:
            break
        deadline.wait(0.01)
    assert {thread.ident for thread in may_issue(frozenset())} == before


def test_thread_names_do_not_depend_on_what_ran_before() -> None:
    def saver() -> None:
        names.append(found.of(threading.get_native_id()))
        idents.append(threading.get_ident())

    names: list[str] = []
    idents: list[int] = []
    found = ThreadNames()
    for _ in range(3):
        thread = threading.Thread(target=saver)
        thread.start()
        thread.join()
    assert names == ["saver", "saver#2", "saver#3"]
    assert len(set(idents)) < 3, "Python's idents came again, so they would not do"


def test_a_thread_that_follows_another_has_a_name_of_its_own() -> None:
    """The end of the first goes unnoticed, since no other thread of the rank was blocked when it came."""
    recorder, sender = begun(GLOO)
    for _ in range(2):
        thread = threading.Thread(target=issue, args=(recorder,), name="saver")
        thread.start()
        thread.join()
    recorder.flush()
    assert [record[2] for record in sender.of("i")] == ["saver", "saver#2"]


def test_a_worker_that_was_parked_comes_back_as_a_new_thread(pool: ThreadPoolExecutor) -> None:
    """It was said to have ended while it idled, so nothing of that name counts any more."""
    recorder, sender = begun(GLOO)
    pool.submit(issue, recorder).result(5)
    worker = next(t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor"))
    while worker in may_issue(frozenset()):
        threading.Event().wait(0.001)
    recorder._look_around()
    pool.submit(issue, recorder).result(5)
    recorder.flush()
    first, second = (record[2] for record in sender.of("i"))
    assert second == f"{first}#2"
    assert sender.of("e")[0][1] == first


def test_outside_a_rank_there_is_no_recorder() -> None:
    with pytest.raises(HarnessError, match="no rank runs in this process"):
        current()
    with label("x"), unrecorded():
        pass


def test_error_keeps_its_certificate_on_the_way() -> None:
    recorder, _ = begun()
    recorder.on_message(Stop(1, pickle.dumps(StoppedError("too slow"))))
    with pytest.raises(StoppedError, match="too slow"):
        issue(recorder)
