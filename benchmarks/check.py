"""Flight-recorder dumps judged: CPU seconds and memory beside torchfrtrace on the same files, and how they grow.

Every rank is in the world, one row and one column of a mesh, and issued 1000 operations that all completed; one rank
issued two of them the other way round. torchfrtrace says nothing of that; it has to be found. Both start as processes
of their own, interpreter and imports included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.record.flight.mesh import Mesh

ENTRIES = 1000
#: Rows and columns of the meshes: smallest and largest show how cost grows, the middle one stands beside the peer.
SMALL, MIDDLE, LARGE = (8, 8), (32, 32), (64, 64)
CPU_BAR, MEMORY_BAR, GROWTH_BAR = 0.1, 0.5, 1.5
_PEER = "import sys; from torch.distributed.flight_recorder.fr_trace import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Cost:
    """What a process took: CPU seconds, MiB at its peak, and its output."""

    cpu: float
    memory: float
    code: int
    output: str


def cost(words: list[str]) -> Cost:
    """Run a process to its end."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode, text)


def check(folder: Path) -> Cost:
    """``harness check`` on the folder."""
    return cost([sys.executable, "-m", "harness", "check", "--json", str(folder)])


def inverted(mesh: Mesh, found: Cost) -> bool:
    """Whether the inverted pair, and nothing else, is what was found."""
    report = json.loads(found.output.splitlines()[-1])
    assert mesh.inverted is not None
    ranks = {link["rank"] for link in report["cycle"]}
    return report["order"] == "cyclic" and len(report["cycle"]) == 2 and mesh.inverted[0] in ranks


def made(shape: tuple[int, int], root: Path) -> tuple[Mesh, Path]:
    """The dumps of one mesh."""
    mesh = Mesh(*shape, ENTRIES, inverted=(shape[1] + 1, ENTRIES // 2 // 3 * 3))
    folder = root / f"{mesh.ranks}"
    mesh.write(folder)
    return mesh, folder


def run() -> list[dict[str, Any]]:
    """CPU and memory beside the peer, whether the pair was found, and growth up to 4096 ranks."""
    with tempfile.TemporaryDirectory() as root:
        small, folder = made(SMALL, Path(root))
        check(folder)  # compiles on a machine's first use
        least = check(folder)
        mesh, folder = made(MIDDLE, Path(root))
        ours, theirs = check(folder), cost([sys.executable, "-c", _PEER, str(folder)])
        if theirs.code:
            raise RuntimeError(f"torchfrtrace failed: {theirs.output[-500:]}")
        large, folder = made(LARGE, Path(root))
        most = check(folder)
    size = f"{mesh.ranks} ranks x {ENTRIES}"
    rate = {m.ranks: c.cpu / (m.ranks * ENTRIES) * 1e6 for m, c in ((small, least), (mesh, ours), (large, most))}
    growth = rate[large.ranks] / rate[mesh.ranks]
    found = all(inverted(m, c) for m, c in ((small, least), (mesh, ours), (large, most)))
    silent = all(word not in theirs.output.lower() for word in ("cycl", "invert", "deadlock"))
    return [
        _row(f"check: {size}, CPU", ours.cpu, "s", theirs.cpu, CPU_BAR),
        _row(f"check: {size}, memory", ours.memory, "MiB", theirs.memory, MEMORY_BAR),
        {
            "name": "check: CPU per entry, "
            + ", ".join(f"{ranks} ranks {value:.2f}" for ranks, value in rate.items())
            + f"; {large.ranks} beside {mesh.ranks}",
            "value": rate[large.ranks],
            "unit": "us",
            "peer": rate[mesh.ranks],
            "ratio": growth,
            "bar": f"at most {GROWTH_BAR:g} of the cost at {mesh.ranks} ranks",
            "holds": growth <= GROWTH_BAR,
        },
        {
            "name": f"check: the inverted pair is found ({small.ranks} to {large.ranks} ranks)",
            "value": int(found),
            "unit": "yes = 1",
            "peer": int(not silent),
            "ratio": None,
            "bar": "found",
            "holds": found,
        },
    ]


def _row(name: str, value: float, unit: str, peer: float, bar: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "peer": peer,
        "ratio": value / peer,
        "bar": f"at most {bar:g} of torchfrtrace's",
        "holds": value <= bar * peer,
    }
