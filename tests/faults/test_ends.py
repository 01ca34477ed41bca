"""No orphan survives, whatever dies first: pytest, the fork server, or the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from harness.world import forkserver, pool, processes
from harness.world.launch import Local
from harness.world.world import World

from . import bodies
from .bound import BOUND, bound
from .table import SIGNALS, Row

#: A test that hangs, with processes below its ranks, and says who is who.
HANGING = """
import json, os, subprocess, time
from pathlib import Path
from harness.world import pool, forkserver

HERE = Path(__file__).parent

def hang(folder):
    import torch.distributed as dist
    children = [subprocess.Popen(["sleep", "62.3"], start_new_session=new).pid for new in (False, True)]
    Path(folder, f"ready-{dist.get_rank()}").write_text(json.dumps([os.getpid(), *children]))
    time.sleep(60)

def test_hang():
    world = pool.get(SIZE, BACKEND)
    server = forkserver.ForkServer.shared()
    (HERE / "server").write_text(json.dumps([server.ready.pid, world._ranks.folder]))
    world.run(hang, str(HERE))
"""


class _Session:
    """A pytest session that hangs in its test, and all the processes it has."""

    def __init__(self, folder: Path, wait_for: Callable[[Path], bool], backend: str = "lane", size: int = 2) -> None:
        self.folder = folder
        text = HANGING.replace("BACKEND", repr(backend)).replace("SIZE", str(size))
        (folder / "test_hanging.py").write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-s", str(folder / "test_hanging.py")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while not wait_for(folder):
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the pytest under test did not come up"
            time.sleep(0.02)
        self.server = 0
        self.pids = {self.process.pid} | {found.pid for found in processes.descendants(self.process.pid)}

    def send(self, sig: int) -> tuple[str, float]:
        """Send the signal to the whole foreground, and wait until everything is gone, pytest and the server too.

        Ranks and what they started must be gone within the bound, whatever the machine is doing; pytest first prints
        its traceback, which takes longer where others compete. Returns the output, and the seconds until all were gone.
        """
        started = time.monotonic()
        os.killpg(self.process.pid, sig)
        last = {self.process.pid, self.server} - {0}
        self._wait_gone(self.pids - last, started + BOUND)
        self._wait_gone(last, started + bound())
        seconds = time.monotonic() - started
        return self.process.communicate()[0], seconds

    @staticmethod
    def _wait_gone(pids: set[int], deadline: float) -> None:
        while (left := [pid for pid in pids if _alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in left:
            processes.kill_quietly(pid)
        assert left == [], "processes survive"


def _alive(pid: int) -> bool:
    found = processes.stat(pid)
    return found is not None and found.state != "Z"


def _signals() -> list[Any]:
    """All at every size; of those, a pull request ends two ranks of a model by each, and two of gloo by two."""
    found = []
    for sig in SIGNALS:
        for backend in ("gloo", "lane"):
            for size in (2, 4, 8):
                quick = size == 2 and (backend == "lane" or sig in (signal.SIGINT, signal.SIGKILL))
                marks = [] if quick else [pytest.mark.nightly]
                found.append(pytest.param(sig, backend, size, marks=marks, id=f"{sig.name}-{backend}-{size}"))
    return found


@pytest.mark.parametrize(("sig", "backend", "size"), _signals())
def test_nothing_outlives_pytest(
    tmp_path: Path, sig: signal.Signals, backend: str, size: int, fault_table: list[Row]
) -> None:
    ready = [tmp_path / f"ready-{rank}" for rank in range(size)]
    session = _Session(tmp_path, lambda _: all(map(_written, ready)), backend, size)
    session.server, world_folder = json.loads((tmp_path / "server").read_text())
    session.pids |= {session.server, *chain(*(json.loads(path.read_text()) for path in ready))}
    assert len(session.pids) >= 2 + 3 * size, "pytest, the server, the ranks, and two processes of each"
    output, seconds = session.send(sig)
    assert not Path(world_folder).exists()
    if sig == signal.SIGINT:
        assert "KeyboardInterrupt" in output
    told = "KeyboardInterrupt, as pytest tells it" if sig == signal.SIGINT else "-"
    fault_table.append(Row(SIGNALS[sig], backend, size, "nothing is left", told, seconds, True))


def _written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("]")


def test_a_server_that_still_imports_goes_with_pytest(tmp_path: Path) -> None:
    def importing(_: Path) -> bool:
        sessions = [p.pid for p in processes.everything() if str(tmp_path) in _command(p.pid)]
        return any("harness.world.server" in _command(p.pid) for pid in sessions for p in processes.descendants(pid))

    _Session(tmp_path, importing).send(signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _start_children(victim: int) -> list[int]:
    del victim
    return [subprocess.Popen(["sleep", "62.9"]).pid]


def test_a_killed_server_is_a_verdict_and_is_replaced() -> None:
    world = pool.get(2, "lane")
    children = list(chain(*world.run(_start_children, 0).values))
    server = forkserver.ForkServer.shared()
    assert server.ready is not None
    killed = server.ready.pid
    started = time.monotonic()
    run = world.run(_kill, killed)
    assert time.monotonic() - started < BOUND
    assert not run.ok
    assert all("is gone" in outcome.error.message or "signal 9" in outcome.error.message for outcome in _failed(run))
    _assert_gone([killed, *children, *(member.pid for member in world.members)])
    assert pool.get(2, "lane").run(bodies.sound).values == [3.0, 3.0]


def _failed(run: Any) -> list[Any]:
    return [outcome for outcome in run.ranks if outcome.error is not None]


def _kill(pid: int) -> None:
    import torch.distributed as dist

    if dist.get_rank() == 0:
        os.kill(pid, signal.SIGKILL)
    time.sleep(30)


def _assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + BOUND
    while (left := [pid for pid in pids if _alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def test_closing_takes_everything_within_two_seconds() -> None:
    world = World(4, "lane", launcher=Local())
    pids = [member.pid for member in world.members] + list(chain(*world.run(_start_children, 0).values))
    started = time.monotonic()
    world.close()
    assert time.monotonic() - started < BOUND
    _assert_gone(pids)
    world.close()


def test_ranks_start_with_one_thread_in_the_server_and_no_device_open() -> None:
    pool.get(2, "lane")
    server = forkserver.ForkServer.shared()
    assert server.ready is not None
    assert server.ready.threads == 1
    opened = [os.readlink(f"/proc/{server.ready.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.ready.pid}/fd")]
    assert not [path for path in opened if path.startswith(("/dev/nvidia", "/dev/dri", "/dev/accel"))]


def test_a_world_of_no_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        World(0, "lane")
