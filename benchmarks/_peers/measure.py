"""Runs the peers' tests and reads how long they took.

`measure` runs one of the files here in a clean pytest and gives the seconds of each test, set-up and teardown
included, and the memory that a rank has of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Measured(NamedTuple):
    """Seconds of each test, in order, and mebibytes that belong to a rank alone (median)."""

    seconds: list[float]
    mebibytes: float


def why_not(peer: str) -> str | None:
    """What is lacking to measure the peer, or None."""
    if peer == "distributed_test":
        source = os.environ.get("DEEPSPEED_SOURCE", "")
        if not (Path(source) / "tests" / "unit" / "common.py").exists() or not source:
            return "set DEEPSPEED_SOURCE to a checkout of DeepSpeed"
        return None
    try:
        import expecttest  # noqa: F401
    except ImportError:
        return "pip install expecttest"
    return None


def measure(peer: str, ranks: int, tests: int) -> Measured:
    """Run ``tests`` tests of ``peer`` on ``ranks`` ranks. Raises RuntimeError if they don't pass."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = folder / "tests" / "unit"
        target.mkdir(parents=True)
        if peer == "distributed_test":
            source = Path(os.environ["DEEPSPEED_SOURCE"]) / "tests" / "unit"
            for file in ("__init__.py", "common.py", "util.py"):
                shutil.copy(source / file, target)
            shutil.copy(source.parent / "conftest.py", target.parent)  # it runs the tests
        shutil.copy(HERE / f"{peer}.py", target / "test_peer.py")
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PEER_RANKS": str(ranks),
            "PEER_TESTS": str(tests),
            "PEER_MEMORY": str(folder / "memory"),
            "LOCAL_SIZE": str(ranks),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(folder / "x.xml")]
        done = subprocess.run(
            [*command, str(target / "test_peer.py")], cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{peer} on {ranks} ranks failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        cases = ElementTree.parse(folder / "x.xml").iter("testcase")
        memory = [float(line) for line in (folder / "memory").read_text().split()]
        return Measured([float(case.attrib["time"]) for case in cases], statistics.median(memory))
