"""A backend that comes by an entry point, driven through torch's own registry, as HCCL or any other engine would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "backend_plugin"

#: Gives torch a backend, as importing torch_npu does; beneath it is gloo. The machine gets devices, to choose from.
TOY = """
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d

def create(store, rank, size, timeout):
    return c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)

dist.Backend.register_backend("toyccl", create, devices=["cpu"])
torch.cpu.device_count = lambda: 2
torch.cpu.set_device = lambda index: None
"""

PLUGIN = """
from harness.backends.accelerator import Accelerator
from harness.backends.spec import BackendSpec

TOY = Accelerator(
    spec=BackendSpec(name="toyccl", transport="toyccl", model="independent", granting=False),
    device="cpu", packages=("toyccl",), install="`pip install toyccl`",
)
"""


def _install(folder: Path, name: str, target: str) -> None:
    """What pip leaves of a package with that entry point."""
    info = folder / f"harness_{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: harness-{name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[harness.backends]\n{name} = {target}\n")


def _python(code: str, *path: Path) -> str:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, root)))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_worked_example_is_found_and_says_what_it_lacks(tmp_path: Path) -> None:
    _install(tmp_path, "hccl", "harness_hccl:HCCL")
    code = "from harness import backends; print(backends.names()); print(backends.get('hccl').available())"
    names, reason = _python(code, tmp_path, EXAMPLE).splitlines()
    assert "'hccl'" in names
    assert reason.startswith("torch_npu is not installed: `pip install torch-npu`")


@pytest.mark.slow
def test_a_plugged_in_engine_runs(tmp_path: Path) -> None:
    """Worlds, groups, verdicts and the device note; and a rank without a device of its own is refused."""
    (tmp_path / "toyccl.py").write_text(TOY)
    (tmp_path / "toyplugin.py").write_text(PLUGIN)
    _install(tmp_path, "toyccl", "toyplugin:TOY")
    code = """
from harness import testing
from harness.errors import WorldError
from harness.testing.hazards import HAZARDS
from harness.world import pool
lines = []
pool.get(2, "toyccl").run(HAZARDS["inversion"].body, sink=lines.append)
print(testing.verdict(lines).verdict, testing.verdict(lines).order)
print(sorted(line["value"]["device"] for line in lines if line["type"] == "note"))
try:
    pool.get(3, "toyccl")
except WorldError as error:
    print("one a rank is needed" in str(error))
pool.close_all()
"""
    assert _python(code, tmp_path).splitlines() == ["completes cyclic", "['cpu:0', 'cpu:1']", "True"]
