"""What a run was measured with: versions, hardware, command. Imports none of what it asks about."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from harness.backends.devices import devices

#: Where a process that starts others leaves the command it was given.
COMMAND = "HARNESS_COMMAND"

_PACKAGES = (
    "collective-harness",
    "torch",
    "deepspeed",
    "pytest",
    "transformers",
    "oneccl",
    "mpi4py",
    "mpich",
    "intel-extension-for-pytorch",
    "torch-npu",
)


def versions() -> dict[str, str]:
    """Versions of Python and of what is installed and matters to verdicts."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, str | int]:
    """Processor, cores that this process may use, memory, kernel, accelerators; and the command that was given."""
    accelerators = "; ".join(map(str, devices()))
    return {
        **({"accelerators": accelerators} if accelerators else {}),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "command": os.environ.get(COMMAND) or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
