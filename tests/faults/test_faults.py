"""Every fault at 2, 4 and 8 ranks, on a real engine and on a model: the verdict, its bound, and what is left.

`FAULTS` is also the table in docs/faults.md, which `HARNESS_FAULTS_TABLE=docs/faults.md pytest tests/faults -m ""`
writes anew.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

from harness.record.verdict import verdict
from harness.world import pool, processes, supervisor
from harness.world.world import World

from . import bodies
from .bound import bound
from .table import DOCUMENT, FULL_DISK, SIGNALS, Row, read


@dataclass(frozen=True)
class Fault:
    """``cause`` must be part of the explanation; ``{victim}`` in it is the rank. ``limit`` is the run's, in seconds."""

    name: str
    body: Callable[[int], Any]
    verdict: str
    cause: str
    limit: float = 30.0


FAULTS = (
    Fault("killed by signal 9", bodies.killed, "crashed", "rank {victim}: died: was killed by signal 9 (SIGKILL)"),
    Fault("sys.exit(3)", bodies.sys_exit, "crashed", "rank {victim}: SystemExit: called sys.exit(3)"),
    Fault("os._exit(0) before the end", bodies.early_exit, "crashed", "rank {victim}: died: ended with exit 0"),
    Fault("exception in one rank", bodies.raises, "crashed", "rank {victim}: ValueError: no such expert"),
    Fault("exception in all ranks", bodies.all_raise, "crashed", "rank {victim}: ValueError: no such expert on rank"),
    Fault("abort in native code", bodies.native_abort, "crashed", "signal 6 (SIGABRT)"),
    Fault("segmentation fault", bodies.segfault, "crashed", "rank {victim}: died: was killed by signal 11 (SIGSEGV)"),
    Fault("memory limit hit", bodies.memory_limit, "crashed", "rank {victim}: RuntimeError: "),
    Fault(
        "control channel closed", bodies.closes_channel, "crashed", "rank {victim}: died: closed its control channel"
    ),
    Fault("stopped by signal 19", bodies.stopped, "timeout", "unproven: rank {victim} (stopped", limit=0.5),
    Fault(
        "in an uninterruptible call",
        bodies.uninterruptible,
        "timeout",
        "unproven: rank {victim} (in an uninterruptible call",
        limit=0.5,
    ),
    Fault("endless loop", bodies.endless_loop, "timeout", "unproven: rank {victim} (at ", limit=0.5),
    Fault(
        "endless loop, lock held", bodies.endless_loop_with_lock, "timeout", "unproven: rank {victim} (at ", limit=0.5
    ),
    Fault("slow, within the limit", bodies.slow, "completes", ""),
    Fault("100 MB of output", bodies.floods, "completes", ""),
    Fault(
        "processes started and left", bodies.leaves_children, "crashed", "rank {victim}: died: was killed by signal 9"
    ),
)


def cases() -> list[Any]:
    """All, of which a pull request runs those at 2 ranks, and on the model those at 4 and 8 that need not wait."""
    found = []
    for fault in FAULTS:
        for backend in ("gloo", "lane"):
            for size in (2, 4, 8):
                quick = (
                    size == 2 or (backend == "lane" and fault.verdict == "crashed") or (size == 4 and not fault.cause)
                )
                marks = [] if quick else [pytest.mark.nightly]
                found.append(pytest.param(fault, backend, size, marks=marks, id=f"{fault.name}-{backend}-{size}"))
    return found


@pytest.mark.parametrize(("fault", "backend", "size"), cases())
def test_fault(fault: Fault, backend: str, size: int, fault_table: list[Row]) -> None:
    world = pool.get(size, backend)
    assert world.run(bodies.sound).values
    before = _traces(world)
    descriptors = len(os.listdir("/proc/self/fd"))
    victim = size - 1
    lines: list[dict[str, Any]] = []

    started = time.monotonic()
    run = world.run(fault.body, victim, limit=fault.limit, sink=lines.append)
    seconds = time.monotonic() - started

    found = verdict(lines)
    fault_table.append(Row(fault.name, backend, size, found.verdict, found.explanation, seconds, run.tainted))
    assert found.verdict == fault.verdict, found.explanation
    assert fault.cause.format(victim=victim) in found.explanation
    assert seconds < (fault.limit if fault.verdict == "timeout" else 0) + bound()
    if fault.verdict != "completes" and fault.body not in (bodies.all_raise, bodies.native_abort):
        assert run.culprits == (victim,)
    if run.tainted:
        before.assert_gone()
    assert pool.get(size, backend).run(bodies.sound).values == [size * (size + 1) / 2] * size
    assert len(os.listdir("/proc/self/fd")) == descriptors


@dataclass
class _Traces:
    """What a world has outside this process."""

    pids: list[int]
    folder: str
    tag: str

    def assert_gone(self) -> None:
        """Nothing of it is left; a process that was killed may take a moment to be gone."""
        deadline = time.monotonic() + 2
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert left == []

    def _left(self) -> list[str]:
        alive = [f"process {p.pid}" for p in processes.everything() if p.pid in self.pids or p.session in self.pids]
        sleepers = [f"process {p.pid}" for p in processes.everything() if _command(p.pid) == "sleep\0" + "61.7\0"]
        files = [self.folder] if Path(self.folder).exists() else []
        return alive + sleepers + files + [name for name in os.listdir("/dev/shm") if self.tag in name]


def _traces(world: World) -> _Traces:
    ranks = world._ranks
    assert ranks is not None
    return _Traces([member.pid for member in world.members], ranks.folder, ranks.tag)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_output_is_kept_in_part_and_labelled() -> None:
    run = pool.get(2, "lane").run(bodies.floods, 1)
    loud, quiet = run.ranks[1], run.ranks[0]
    assert quiet.stdout == ""
    assert loud.stdout.startswith("first line\n")
    assert loud.stdout.endswith("last line\n")
    assert "bytes of output dropped" in loud.stdout
    assert len(loud.stdout) < 1 << 20


def test_stderr_of_a_dead_rank_is_told() -> None:
    run = pool.get(2, "gloo").run(bodies.killed, 1)
    assert run.ranks[1].error is not None
    assert run.ranks[1].error.message.endswith("about to be killed")
    assert run.ranks[1].exit == "signal 9"


def test_a_segmentation_fault_leaves_its_python_stack() -> None:
    run = pool.get(2, "lane").run(bodies.segfault, 0)
    assert "Fatal Python error: Segmentation fault" in run.ranks[0].stderr
    assert " in segfault" in run.ranks[0].stderr
    assert run.ranks[0].error is not None
    assert re.search(r"(?s)Fatal Python error: Segmentation fault\n.* in segfault\n", run.ranks[0].error.message)


def test_a_timeout_has_the_stacks_of_all_that_did_not_end() -> None:
    run = pool.get(4, "lane").run(bodies.endless_loop_with_lock, 2, limit=0.5)
    assert run.timed_out
    assert " in endless_loop_with_lock" in run.ranks[2].stack
    assert all(" in sound" in run.ranks[rank].stack for rank in (0, 1, 3))


def test_native_frames_where_asked_for() -> None:
    run = pool.get(2, "gloo").run(bodies.endless_loop_with_lock, 1, limit=0.5, native=True)
    assert "sre_ucs1_match" in run.ranks[1].stack or "not permitted" in run.ranks[1].stack


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("backend", ["gloo", "lane"])
def test_a_full_disk_loses_evidence_and_nothing_else(backend: str, size: int, fault_table: list[Row]) -> None:
    world = pool.get(size, backend)
    full = os.open("/dev/full", os.O_WRONLY)
    started = time.monotonic()
    try:
        run = world.run(bodies.sound, sink=lambda line: os.write(full, str(line).encode()))
    finally:
        os.close(full)
    seconds = time.monotonic() - started
    assert run.values == [size * (size + 1) / 2] * size
    assert "No space left on device" in run.evidence_error
    fault_table.append(Row(FULL_DISK, backend, size, "completes", run.evidence_error, seconds, run.tainted))


def _dies_building(lock: str) -> None:
    if dist.get_rank() == 0:
        assert FileBaton(lock).try_acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)


def _builds(lock: str) -> None:
    baton = FileBaton(lock)
    if baton.try_acquire():
        baton.release()
    else:
        baton.wait()


def test_an_extension_build_that_was_killed_does_not_wedge_the_next(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    run = pool.get(2, "lane").run(_dies_building, str(lock))
    assert run.culprits == (0,)
    assert not lock.exists()
    assert pool.get(2, "lane").run(_builds, str(lock), limit=5.0).ok
    lock.touch()
    stuck = pool.get(2, "lane").run(_builds, str(lock), limit=0.5)
    assert stuck.timed_out, "a lock of somebody else is left alone"
    assert "file_baton.py" in stuck.ranks[0].stack


def _leaves_shared_memory() -> None:
    kept = shared_memory.SharedMemory(create=True, size=4096)
    torch.ones(8).share_memory_()
    os.kill(os.getpid(), signal.SIGKILL)
    kept.close()


def test_shared_memory_of_killed_ranks_is_removed() -> None:
    world = pool.get(2, "gloo")
    traces = _traces(world)
    run = world.run(_leaves_shared_memory)
    assert run.tainted
    names = os.listdir("/dev/shm")
    assert not [name for name in names if traces.tag in name or any(f"torch_{pid}_" in name for pid in traces.pids)]


def test_rank_0_may_die_too() -> None:
    run = pool.get(4, "lane").run(bodies.killed, 0)
    assert run.culprits == (0,)
    assert pool.get(4, "lane").run(bodies.sound).ok


def test_every_fault_is_in_the_documented_table() -> None:
    rows = read(DOCUMENT)
    ends = dict.fromkeys(SIGNALS.values(), "nothing is left")
    expected = {fault.name: fault.verdict for fault in FAULTS} | {FULL_DISK: "completes"} | ends
    assert {name: row["verdict"] for name, row in rows.items()} == expected


def _gather_crosswise() -> None:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    for group in groups if dist.get_rank() else reversed(groups):
        dist.all_reduce(torch.ones(1), group=group)


def test_a_broken_detector_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What proves a deadlock is the model and nothing else: without it the same run is a timeout, unproven."""
    proved: list[dict[str, Any]] = []
    pool.get(2, "lane").run(_gather_crosswise, sink=proved.append)
    assert verdict(proved).verdict == "deadlock"
    monkeypatch.setattr(supervisor, "proof", lambda _: None)
    unproved: list[dict[str, Any]] = []
    run = pool.get(2, "lane").run(_gather_crosswise, limit=0.5, sink=unproved.append)
    assert run.certificate is None
    assert verdict(unproved).verdict == "timeout"
    assert all(" in _gather_crosswise" in outcome.stack for outcome in run.ranks)
