"""What this machine has and lacks: packages, backends, devices, limits, and traps that others fell into before."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import backends
from harness.backends.devices import devices
from harness.matrix.machine import hardware, versions

#: Packages whose presence or version a trap depends on, beside those of every run's record.
_MORE = ("impi-rt", "numba", "py-spy", "pytest-forked", "pytest-xdist", "intel-extension-for-pytorch", "torch-npu")
#: A world of 8 ranks needs about so many descriptors, and a fork server with its worlds some more.
OPEN_FILES = 1024
#: torch hands tensors between processes, and MPICH and oneCCL messages, through shared memory; in MiB.
SHARED_MEMORY = 512
#: A lock of a compile that nothing holds after so many seconds.
STALE = 600.0


@dataclass(frozen=True)
class Finding:
    """One thing to know. ``fault`` says that something will fail or hang; ``remedy`` what to do about it."""

    subject: str
    text: str
    remedy: str = ""
    fault: bool = False


@dataclass(frozen=True)
class Checkup:
    """All of it. ``lacking`` maps a backend to why it can't run here; those that run have an empty reason."""

    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    devices: tuple[str, ...]
    lacking: Mapping[str, str]
    findings: tuple[Finding, ...]

    def healthy(self, wanted: Iterable[str]) -> bool:
        """Whether the wanted backends run here and nothing is known that will fail."""
        return not any(self.lacking[name] for name in wanted) and not any(found.fault for found in self.findings)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(wanted: Iterable[str] = ()) -> Checkup:
    """Look at this machine. ``wanted`` are backends to ask beside those registered; UsageError for unknown ones."""
    names = ["lanes:2" if name == "lanes:K" else name for name in backends.names()]
    lacking = {name: backends.get(name).available() or "" for name in dict.fromkeys([*names, *wanted])}
    installed = versions() | {name: version for name in _MORE if (version := _version(name))}
    seen = tuple(str(found) for found in devices())
    findings = [*_limits(), *traps(installed, os.environ, Path.home())]
    machine = {name: value for name, value in hardware().items() if name != "command"}
    return Checkup(installed, machine, seen, lacking, tuple(findings))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# --- limits -------------------------------------------------------------------------------------------------


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft < OPEN_FILES
    yield Finding("open files", f"{soft} (at most {hard})", f"ulimit -n {OPEN_FILES}" if few else "", fault=few)
    try:
        free = shutil.disk_usage("/dev/shm").free // 2**20
    except FileNotFoundError:
        yield Finding("shared memory", "there is no /dev/shm", "mount one; in Docker: --shm-size=1g", fault=True)
    else:
        small = free < SHARED_MEMORY
        remedy = "in Docker: --shm-size=1g" if small else ""
        yield Finding("shared memory", f"{free} MiB free in /dev/shm", remedy, fault=small)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() not in ("0", "1") and os.geteuid() != 0:
        yield Finding("stacks", "py-spy may not look into ranks, so native frames are left out", f"sysctl {scope}=1")


# --- traps --------------------------------------------------------------------------------------------------


def traps(installed: Mapping[str, str], env: Mapping[str, str], home: Path) -> Iterator[Finding]:
    """What is known to fail, hang or mislead with these versions, this environment and what lies in ``home``."""
    for trap in _TRAPS:
        yield from trap(installed, env)
    folder = Path(env.get("TORCH_EXTENSIONS_DIR", home / ".cache" / "torch_extensions"))
    for lock in sorted(folder.glob("**/lock")):
        if time.time() - lock.stat().st_mtime > STALE and not _at_work(lock.parent):
            text = f"{lock} was left by a compile that was killed: whatever loads that extension waits for ever"
            yield Finding("torch extensions", text, f"rm {lock}")


def _at_work(folder: Path) -> bool:
    """Whether a process runs in the folder, as a compile's do."""
    for process in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if process.readlink() == folder:
                return True
        except OSError:
            continue  # it has ended, or is another user's
    return False


def _mpi_beside_impi(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    if "mpich" in installed and "impi-rt" in installed:
        yield Finding(
            "mpich and impi-rt",
            "both install lib/libmpi.so.12 and bin/mpiexec, so one has overwritten the other",
            "give oneccl (which brings impi-rt) and mpi an environment each: tox run -e oneccl, tox run -e mpi",
            fault=True,
        )


def _deepspeed(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    if "deepspeed" not in installed:
        return
    if "DS_ACCELERATOR" not in env and not devices():
        yield Finding("DeepSpeed", "probes for accelerators in every process", "export DS_ACCELERATOR=cpu")
    if _numbers(installed["deepspeed"]) < (0, 19, 3):
        yield Finding(
            "DeepSpeed",
            f"{installed['deepspeed']} has one partition group for all parameters, so no order to fix",
            "use 0.19.3 or later",
        )
    if _numbers(installed.get("transformers", "0")) >= (5, 24):
        yield Finding(
            "transformers", f"AutoEP crashes at its start with 5.24.0 (here: {installed['transformers']})", "use 5.2.0"
        )


def _pytest_forked(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    if "pytest-forked" in installed and _numbers(installed.get("pytest", "0")) >= (9, 2):
        yield Finding("pytest-forked", "fails every test under pytest 9.2", "pip install 'pytest<9.2'", fault=True)


def _debug_wrapper(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    if env.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        yield Finding(
            "TORCH_DISTRIBUTED_DEBUG",
            "DETAIL makes every collective block, ten times slower, and after a "
            "monitored_barrier of more than two ranks fails the next collective (torch 2.13)",
            "unset it; the backend gloo-detail shows what it reports",
        )


def _hash_seed(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    if env.get("PYTHONHASHSEED", "random") != "random":
        yield Finding(
            "PYTHONHASHSEED",
            "is set (tox does so): sets of strings iterate alike in all ranks, which hides orders that differ",
            "unset it",
        )


def _switches(installed: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "TORCH_XCCL_BLOCKING_WAIT", "NCCL_LAUNCH_ORDER_IMPLICIT"):
        if name in env:
            yield Finding(
                name, f"is set ({env[name]}) and changes when hosts wait, for every backend of its library", ""
            )


_TRAPS: tuple[Callable[[Mapping[str, str], Mapping[str, str]], Iterator[Finding]], ...] = (
    _mpi_beside_impi,
    _deepspeed,
    _pytest_forked,
    _debug_wrapper,
    _hash_seed,
    _switches,
)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` as (2, 13, 0)."""
    found = []
    for part in version.partition("+")[0].split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def python() -> str:
    """Which interpreter this is."""
    return f"{sys.executable} ({sys.version.split()[0]})"
