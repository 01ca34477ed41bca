"""Dumps that torch's own recorder wrote: gloo, whose groups have no ranks in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.record.flight.judge import judge

SCRIPT = """
import os, pathlib, sys
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d

folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
dist.init_process_group("gloo")
mirror = dist.new_group([0, 1])
tensor = torch.ones(4)
dist.all_reduce(tensor)
order = [None, mirror] if rank == 0 else [mirror, None]
works = [dist.all_reduce(torch.ones(4), group=group, async_op=True) for group in order]
for work in works:
    work.wait()
dist.barrier()
(folder / "pickles" / f"trace_{rank}").write_bytes(c10d._dump_fr_trace())
(folder / "json" / f"trace_{rank}.json").write_bytes(c10d._dump_fr_trace_json())
dist.barrier()
"""


@pytest.mark.slow
def test_gloo(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    for form in ("pickles", "json"):
        (tmp_path / form).mkdir()
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "WORLD_SIZE": "2",
        "TORCH_FR_BUFFER_SIZE": "100",
    }
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script)]
    done = subprocess.run(
        [*words, str(tmp_path)], env={**_environment(), **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for form in ("pickles", "json"):
        found = judge(tmp_path / form)
        assert found.ranks == (0, 1)
        assert found.operations == 8
        assert found.order.verdict == "cyclic"
        assert found.models["independent"][0] == {"completes"}
        assert found.models["lane"][0] == {"deadlock"}
        assert any("names no ranks" in sentence for sentence in found.assumed)
        lines = {frame[0][:2] for frame, _ in found.places if frame}
        assert lines == ({(str(script), 12)} if form == "pickles" else set())


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
