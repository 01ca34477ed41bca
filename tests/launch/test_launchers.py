"""The same tests under torchrun, several torchrun agents, and srun: ranks are given, not forked by pytest."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from harness.errors import UsageError, WorldError
from harness.world import processes
from harness.world.external import External
from harness.world.place import Place
from harness.world.world import World

#: What pytest runs as the supervisor: a sound run, a proven deadlock, the same world again, a death, and a new world.
TESTS = """
import os, signal
import torch, torch.distributed as dist
from harness.world import pool
from harness.world.rank import here

SIZE = int(os.environ["HARNESS_RANKS"])

def sound():
    value = torch.ones(4) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    print("spoken by", dist.get_rank())
    place = here()
    return float(value[0]), place.local_rank, os.getppid()

def crosswise():
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    for group in groups if dist.get_rank() else reversed(groups):
        dist.all_reduce(torch.ones(1), group=group)

def dies():
    sound()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    sound()

def test_all():
    world = pool.get(SIZE, "lane")
    run = world.run(sound)
    assert [value[0] for value in run.values] == [SIZE * (SIZE + 1) / 2] * SIZE
    assert len({value[2] for value in run.values}) == SIZE, "every rank has an agent of its own"
    run = world.run(crosswise, limit=20)
    assert run.certificate.outcome == "deadlock" and not run.tainted
    run = world.run(sound)
    assert run.ranks[1].stdout == "spoken by 1\\n"
    run = world.run(dies)
    assert run.culprits == (1,) and run.ranks[1].exit == "signal 9" and run.tainted
    run = pool.get(SIZE, "lane").run(sound)
    assert run.ok
    print("LOCAL RANKS", [value[1] for value in run.values])

def test_a_smaller_world():
    assert pool.get(1, "gloo").run(sound).values[0][0] == 1.0
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A key of its own, and a free port on loopback. (The listener says so if somebody else takes it meanwhile.)"""
    (tmp_path / "test_launched.py").write_text(TESTS)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return {
        **os.environ,
        "HARNESS_KEY": secrets.token_hex(32),
        "HARNESS_LISTEN": f"127.0.0.1:{port}",
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)]),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def jobs() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that the test starts; none is left behind."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for job in started:
        below = {p.pid for p in processes.descendants(job.pid)}
        job.kill()
        job.wait()
        for pid in below:
            processes.kill_quietly(pid)


def _start(jobs: list[subprocess.Popen[str]], command: list[str], env: dict[str, str], cwd: Path) -> None:
    jobs.append(
        subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    )


def _pytest(folder: Path) -> str:
    return f"-q -s -p no:cacheprovider {folder / 'test_launched.py'}"


def _torchrun(*arguments: str) -> list[str]:
    return [str(Path(sysconfig.get_path("scripts")) / "torchrun"), *arguments, "-m", "harness.rank"]


def test_one_torchrun(tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]]) -> None:
    command = _torchrun("--standalone", "--nproc-per-node=2")
    _start(jobs, [*command, "--pytest", _pytest(tmp_path)], environment, tmp_path)
    output, _ = jobs[0].communicate(timeout=240)
    assert jobs[0].returncode == 0, output
    assert "2 passed" in output
    assert "LOCAL RANKS [0, 1]" in output


@pytest.mark.nightly
def test_two_torchrun_agents_serve_a_pytest_started_by_hand(
    tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for node in range(2):
        nodes = ("--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2", "--master-addr=127.0.0.1")
        _start(jobs, _torchrun(*nodes, f"--master-port={port}"), environment, tmp_path)
    pytest_command = [sys.executable, "-m", "pytest", *_pytest(tmp_path).split()]
    _start(jobs, pytest_command, {**environment, "HARNESS_RANKS": "4"}, tmp_path)
    output, _ = jobs[2].communicate(timeout=300)
    assert jobs[2].returncode == 0, output
    assert "LOCAL RANKS [0, 1, 0, 1]" in output
    assert [job.wait(30) for job in jobs[:2]] == [0, 0]


def test_srun(tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]]) -> None:
    """A stand-in for srun: it sets Slurm's variables, as ``srun --ntasks=2`` over two nodes would."""
    for rank in range(2):
        slurm = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1(x2)"}
        command = [sys.executable, "-m", "harness.rank", "--pytest", _pytest(tmp_path)]
        _start(jobs, command, {**environment, **slurm}, tmp_path)
    output, _ = jobs[0].communicate(timeout=240)
    assert jobs[0].returncode == 0, output
    assert "LOCAL RANKS [0, 0]" in output
    assert jobs[1].wait(30) == 0


def test_agents_that_no_test_needs_are_let_go(
    tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]]
) -> None:
    for rank in range(2):
        command = [sys.executable, "-m", "harness.rank", "--pytest", f"-q {tmp_path / 'nothing.py'}"]
        _start(jobs, command, {**environment, "PMI_RANK": str(rank), "PMI_SIZE": "2"}, tmp_path)
    assert jobs[0].wait(60) == 4, "pytest's own status: there is no such file"
    assert jobs[1].wait(60) == 0


def test_a_wrong_key_is_refused_and_the_right_one_still_served() -> None:
    launcher = External(1, ("127.0.0.1", 0), b"k" * 32)
    with pytest.raises((AuthenticationError, ConnectionError, EOFError)):
        _refused(launcher)
    launcher.close()


def _refused(launcher: External) -> None:
    import threading

    def serve() -> None:
        with pytest.raises(WorldError, match="in time"):
            launcher._accept(time.monotonic() + 1.0, "nobody")

    server = threading.Thread(target=serve)
    server.start()
    try:
        Client(launcher.address, authkey=b"x" * 32)
    finally:
        server.join()


def test_loopback_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_RANKS", "2")
    monkeypatch.setenv("HARNESS_KEY", "ab" * 32)
    monkeypatch.delenv("HARNESS_LISTEN", raising=False)
    launcher = External.from_environment()
    assert launcher is not None
    assert launcher.address[0] == "127.0.0.1"
    with pytest.raises(UsageError, match="a world of 3 ranks: the launcher started 2"):
        World(3, "lane", launcher=launcher)
    launcher.close()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 4, 1, 2, "torchrun")),
        (
            {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4(x2)"},
            (5, 8, 1, 4, "srun"),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            (1, 2, 1, 2, "mpirun"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 1, 2, "mpiexec")),
    ],
)
def test_places(environment: dict[str, str], place: tuple[int, int, int, int, str]) -> None:
    assert Place.of(environment) == place


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "not started by a launcher"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 and WORLD_SIZE=4"),
        ({"RANK": "one", "WORLD_SIZE": "4"}, "RANK='one': a number"),
    ],
)
def test_no_place(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Place.of(environment)


def test_an_interrupted_launcher_leaves_nothing(
    tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "test_launched.py").write_text(
        TESTS + "\n\ndef wait():\n    import time\n    print('waiting', flush=True)\n    time.sleep(60)\n\n"
        "def say(seconds, ranks):\n    print('WAITING', flush=True)\n\n"
        "def test_all():\n    pool.get(SIZE, 'lane').run(wait, progress=say)\n"
    )
    command = _torchrun("--standalone", "--nproc-per-node=2")
    _start(jobs, [*command, "--pytest", _pytest(tmp_path)], environment, tmp_path)
    output = jobs[0].stdout
    assert output is not None
    while "WAITING" not in (line := output.readline()):
        assert line, "the job ended early"
    below = {p.pid for p in processes.descendants(jobs[0].pid)}
    os.killpg(jobs[0].pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (left := [pid for pid in below if _alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _alive(pid: int) -> bool:
    found = processes.stat(pid)
    return found is not None and found.state != "Z"


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two network namespaces that see each other as 10.213.0.1 and 10.213.0.2, and nothing else."""
    names = [f"harness{os.getpid()}{end}" for end in "ab"]
    commands = [
        *(f"ip netns add {name}" for name in names),
        f"ip link add {names[0]} type veth peer name {names[1]}",
        *(f"ip link set {name} netns {name}" for name in names),
        *(f"ip -n {name} addr add 10.213.0.{i}/24 dev {name}" for i, name in enumerate(names, 1)),
        *(f"ip -n {name} link set {device} up" for name in names for device in (name, "lo")),
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted here: {command}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("ip") is None, reason="there is no ip command")
def test_ranks_on_two_networks(
    tmp_path: Path, environment: dict[str, str], jobs: list[subprocess.Popen[str]], namespaces: list[str]
) -> None:
    environment["HARNESS_LISTEN"] = "10.213.0.1:29411"
    for rank, name in enumerate(namespaces):
        slurm = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "harness.rank", "--pytest", _pytest(tmp_path)]
        _start(jobs, command, {**environment, **slurm}, tmp_path)
    output, _ = jobs[0].communicate(timeout=240)
    assert jobs[0].returncode == 0, output
    assert "LOCAL RANKS [0, 0]" in output
    assert jobs[1].wait(30) == 0
