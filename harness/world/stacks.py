"""Where a rank's threads stand: written by the rank itself (faulthandler), or read from outside (py-spy)."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

from harness.world import processes
from harness.world.spec import STACK_SIGNAL

_OWN = str(Path(__file__).with_name("rank.py"))
_HARNESS = str(Path(__file__).parents[1])
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')


def ask(pid: int) -> str:
    """Have a rank write its stacks; returns why it can't, as its state in words, or nothing.

    The handler is in C: it works while another thread holds the interpreter's lock, or none ever lets go of it.
    """
    found = processes.stat(pid)
    if found is None or found.state == "Z":
        return "dead"
    if found.state in "Tt":
        return processes.STATES[found.state]
    processes.kill_quietly(pid, STACK_SIGNAL)
    return processes.STATES[found.state] if found.state == "D" else ""


def from_outside(pids: Iterable[int], limit: float, native: bool) -> dict[int, str]:
    """Stacks by py-spy, all at once; a process that it may not read is left out.

    It does not stop the process: one that is stopped or in an uninterruptible call would hang the reader.
    """
    tool = py_spy()
    if tool is None:
        return {}
    command = [tool, "dump", "--nonblocking"] if not native else [tool, "dump", "--native"]
    running = {
        pid: subprocess.Popen(
            [*command, "--pid", str(pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        for pid in pids
    }
    deadline = time.monotonic() + limit
    found = {}
    try:
        for pid, process in running.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.01))
                if process.returncode == 0 and output.strip():
                    found[pid] = output.decode(errors="replace")
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
                process.communicate()
    return found


def py_spy() -> str | None:
    """The py-spy command: beside this interpreter, or on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    own = Path(sys.executable).with_name("py-spy")
    return next((str(path) for path in (own, beside) if path.exists()), None) or shutil.which("py-spy")


def tidy(text: str) -> str:
    """faulthandler's text without the harness's own: its listener thread, and the frames below the task."""
    threads = re.split(r"\n(?=(?:Current thread|Thread) 0x)", text.strip())
    kept = []
    for thread in threads:
        lines = thread.splitlines()
        if any(_OWN in line and line.endswith(" in _listen") for line in lines):
            continue
        below = next((i for i, line in enumerate(lines) if _OWN in line and line.endswith(" in _run")), len(lines))
        kept.append("\n".join(lines[:below]))
    return "\n".join(kept)


def innermost(text: str) -> str:
    """``file:line in function`` of the main thread's innermost frame that is the user's; empty if there is none."""
    main = re.split(r"\n(?=(?:Current thread|Thread) 0x)", text.strip())[-1]
    frames = [match for match in map(_FRAME.match, main.splitlines()) if match]
    foreign = sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), _HARNESS, "<"
    own = [frame for frame in frames if not frame["file"].startswith(foreign)]
    for frame in own or frames:
        return f"{frame['file']}:{frame['line']} in {frame['function']}"
    return ""


def innermost_outside(text: str) -> str:
    """``file:line in function`` of the first frame in py-spy's text that belongs to the task; empty if none does."""
    frame = re.compile(r"\s+(?P<function>\S+) \((?P<file>[^:()]+):(?P<line>\d+)\)")
    for line in text.splitlines():
        match = frame.match(line)
        if match and match["function"] != "_listen":
            return f"{match['file']}:{match['line']} in {match['function']}"
    return ""
