"""``harness compare`` on the DeepSpeed that is installed and on a copy of it with the fix in its source."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUCKETING = "            params = list(params)\n            if len(params) == 0:"
SORTED = "            params = sorted(params, key=lambda p: p.ds_id)\n            if len(params) == 0:"


@pytest.fixture
def fixed(tmp_path):
    """A checkout that differs from the installed package by the fix: links, but for the one file."""
    installed = Path(importlib.util.find_spec("deepspeed").origin).parent
    copy = tmp_path / "with-sort"
    here, there = copy / "deepspeed", installed
    for part in ("runtime", "zero", "partition_parameters.py"):
        here.mkdir(parents=True)
        for entry in there.iterdir():
            if entry.name != part:
                (here / entry.name).symlink_to(entry)
        here, there = here / part, there / part
    source = there.read_text()
    if source.count(BUCKETING) != 1:
        pytest.skip("the installed DeepSpeed is laid out otherwise, or has the fix")
    here.write_text(source.replace(BUCKETING, SORTED))
    return copy


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_checkout_with_the_fix_beside_the_installed_release(fixed, tmp_path):
    installed = Path(importlib.util.find_spec("deepspeed").origin).parents[1]
    command = [sys.executable, "-m", "harness", "compare", "--scenario", "deepspeed_zero3_group_order"]
    command += ["--without", str(installed), "--with", str(fixed), "--backend", "lane", "--world", "2"]
    command += ["--matrix", str(ROOT / "matrix.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (row,) = (at for at, line in enumerate(lines) if "2 ranks, mirror, reversed" in line)
    assert [word for word in lines[row].split() if word in ("deadlock", "completes")] == ["deadlock", "completes"]
    assert [word for word in lines[row + 1].split() if word in ("cyclic", "consistent")] == ["cyclic", "consistent"]


def test_a_scenario_that_the_suite_lacks_is_refused_with_those_it_has(tmp_path):
    command = [sys.executable, "-m", "harness", "compare", "--scenario", "no_such", "--with", "0.19.3"]
    command += ["--without", "0.19.3", "--matrix", str(ROOT / "matrix.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "its scenarios: deepspeed_zero3_group_order" in done.stderr
