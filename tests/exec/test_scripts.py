"""Unmodified scripts under ``harness exec``: their verdicts, exit codes and evidence."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from harness.record.evidence import read
from harness.report.load import load_run

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"
LIMIT = 240


def execute(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``harness exec`` with its evidence in ``folder``."""
    path = os.pathsep.join(filter(None, (str(SCRIPTS.parents[1]), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "harness", "exec", "--evidence", str(folder), "--limit", "120", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": path, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | environment,
    )


def script(folder: Path, body: str) -> str:
    path = folder / "script.py"
    path.write_text("import torch, torch.distributed as dist\n" + textwrap.dedent(body))
    return str(path)


@pytest.mark.parametrize(
    ("name", "ranks", "says"),
    [
        ("ddp.py", 2, "[0] step 3: loss"),
        ("fsdp2.py", 2, "[0] step 1: loss"),
        ("mesh.py", 4, "[0] step 1: loss"),
    ],
)
def test_an_example_completes_on_a_lane(tmp_path: Path, name: str, ranks: int, says: str) -> None:
    done = execute(tmp_path, "--nproc", str(ranks), "--strict", "--", str(SCRIPTS / name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert says in done.stdout
    assert "completes, order consistent" in done.stdout
    (record,) = load_run(tmp_path).records
    assert record.result.cell.world == ranks
    issued = [line for line in read(record.path) if line["type"] == "issue"]
    assert {line["rank"] for line in issued} == set(range(ranks))


def test_a_pipeline_needs_more_than_one_lane(tmp_path: Path) -> None:
    """Neighbours exchange in batches, which one queue replays in the order listed: both send first."""
    free = execute(tmp_path / "free", "--nproc", "2", "--backend", "independent", "--", str(SCRIPTS / "pipeline.py"))
    assert free.returncode == 0, free.stdout + free.stderr
    assert "losses" in free.stdout
    lane = execute(tmp_path / "lane", "--nproc", "2", "--", str(SCRIPTS / "pipeline.py"))
    assert lane.returncode == 1
    assert "DEADLOCK under lane: ranks 0, 1 wait for each other" in lane.stdout
    assert "in _batch_p2p" in lane.stdout


def test_an_order_hazard_is_shown_where_it_hangs_and_where_it_passes(tmp_path: Path) -> None:
    name = str(SCRIPTS / "two_groups.py")
    lane = execute(tmp_path / "lane", "--nproc", "2", "--", name)
    assert lane.returncode == 1
    assert "deadlock, order cyclic" in lane.stdout
    assert "rank 1 has all_reduce world #0 queued behind all_reduce experts #0" in lane.stdout
    assert "two_groups.py:" in lane.stdout, "whose line it is"
    passes = execute(tmp_path / "gloo", "--nproc", "2", "--backend", "gloo", "--strict", "--", name)
    assert "completes, order cyclic" in passes.stdout, passes.stdout + passes.stderr
    assert "rank 0 issues all_reduce world #0 before all_reduce experts #0" in passes.stdout
    assert "An order that every rank could follow" in passes.stdout
    assert passes.returncode == 1, "strict"


def test_deepspeeds_launcher_starts_its_ranks_itself(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    done = execute(tmp_path, "--", "deepspeed", "--num_gpus", "2", str(SCRIPTS / "deepspeed_zero3.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 1: loss" in done.stdout
    assert "completes, order consistent" in done.stdout


def test_torchrun_starts_its_ranks_itself(tmp_path: Path) -> None:
    name = str(SCRIPTS / "two_groups.py")
    done = execute(tmp_path, "--backend", "gloo", "--", "torchrun", "--nproc-per-node", "2", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completes, order cyclic" in done.stdout, "a hazard that is no failure without --strict"
    assert (tmp_path / "report.html").exists()


def test_ranks_that_a_script_spawns_itself_join_as_they_initialize(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def work(rank, port):
            dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            tensor = torch.full((4,), float(rank))
            dist.all_reduce(tensor)
            assert tensor[0] == 1
            dist.destroy_process_group()
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            dist.barrier()

        if __name__ == "__main__":
            mp.spawn(work, (29511,), nprocs=2)
        """,
    )
    done = execute(tmp_path / "evidence", "--", sys.executable, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks on lane" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here: nothing stands in for it")
def test_a_script_for_cuda_runs_where_there_is_none(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import os
        from torch import nn
        from torch.distributed.device_mesh import init_device_mesh
        from torch.nn.parallel import DistributedDataParallel

        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
        model = DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[local], output_device=local)
        model(torch.randn(2, 4, device=f"cuda:{local}")).sum().backward()
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        total = torch.ones(3).to(torch.device("cuda", local))
        dist.all_reduce(total, group=mesh.get_group())
        torch.cuda.synchronize()
        print("total", int(total[0]), total.device, torch.cuda.device_count(), end="")
        """,
    )
    done = execute(tmp_path / "evidence", "--nproc", "2", "--", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1] total 2 cpu 2\n" in done.stdout, "a last line without an end, too"
    assert "no cuda device here; what the script puts there is on the CPU" in done.stderr


@pytest.mark.parametrize(
    ("body", "verdict", "says"),
    [
        ("if dist.get_rank(): raise KeyError('lost')\ndist.barrier()", "crashed", "KeyError: 'lost'"),
        ("import sys\ndist.barrier()\nsys.exit(3 * dist.get_rank())", "crashed", "its process ended with exit 3"),
        ("if not dist.get_rank(): dist.barrier()", "missing", "rank 1: ended"),
        ("dist.all_reduce(torch.ones(4 + dist.get_rank()))", "mismatch", "n=5"),
        ("import os\ndist.barrier()\nos.kill(os.getpid(), 9 * dist.get_rank())", "crashed", "rank 1: died: was killed"),
    ],
)
def test_what_a_script_does_wrong_is_its_verdict(tmp_path: Path, body: str, verdict: str, says: str) -> None:
    name = script(tmp_path, "dist.init_process_group('nccl')\n" + body)
    done = execute(tmp_path / "evidence", "--nproc", "2", "--", name)
    assert done.returncode == 1
    assert f"\n{verdict}, order" in done.stdout
    assert says in done.stdout, done.stdout + done.stderr


def test_a_script_that_never_ends_is_stopped_with_its_stack(tmp_path: Path) -> None:
    name = script(tmp_path, "import time\ndist.init_process_group('nccl')\nwhile dist.get_rank(): time.sleep(0.1)\n")
    done = execute(tmp_path / "evidence", "--nproc", "2", "--limit", "6", "--", name)
    assert done.returncode == 1
    assert "\ntimeout, order" in done.stdout
    assert "script.py" in done.stdout, "where it was"


def test_wrong_use_is_told_from_a_failure(tmp_path: Path) -> None:
    for arguments, says in (
        (["--nproc", "2", "--", "nowhere.py"], "there is no such script"),
        (["--", str(SCRIPTS / "ddp.py")], "give --nproc N"),
        (["--", "no-such-launcher", "train.py"], "no-such-launcher: there is no such program in PATH"),
        (["-n", "2", "train.py"], "No such option '-n'"),
        (["--nproc", "2", "--", "deepspeed"], "a launcher takes no --nproc"),
        (["--nproc", "2", "--backend", "lan", "--", str(SCRIPTS / "ddp.py")], "backend 'lan' is unknown"),
    ):
        done = execute(tmp_path, *arguments)
        assert done.returncode == 2, done.stdout + done.stderr
        assert says in done.stderr


def test_a_launcher_that_starts_no_rank_is_a_crash(tmp_path: Path) -> None:
    done = execute(tmp_path, "--", "false")
    assert done.returncode == 1
    assert "false ended (exit 1) when 0 of an unknown number of ranks had joined" in done.stdout
