"""What is left of faulthandler's text, and where a rank is in short."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from harness.world import rank, stacks

RANK = str(Path(rank.__file__))
TEXT = f"""Thread 0x00007f (most recent call first):
  File "{RANK}", line 9 in _listen
  File "/usr/lib/python3.11/threading.py", line 1 in run

Current thread 0x00008f (most recent call first):
  File "{Path(RANK).parents[1]}/record/recorder.py", line 77 in pass_gate
  File "/jobs/body.py", line 12 in gather
  File "/jobs/body.py", line 40 in main
  File "{RANK}", line 180 in _run
  File "{RANK}", line 150 in work
"""


def test_the_harness_itself_is_left_out() -> None:
    kept = stacks.tidy(TEXT)
    assert "_listen" not in kept
    assert "in _run" not in kept
    assert kept.endswith("line 40 in main")


def test_innermost_frame_of_the_body() -> None:
    assert stacks.innermost(stacks.tidy(TEXT)) == "/jobs/body.py:12 in gather"
    assert stacks.innermost("") == ""


def test_innermost_frame_of_py_spy() -> None:
    text = 'Process 12: python\nThread 12 (idle): "MainThread"\n    stopped (bodies.py:44)\n    _run (rank.py:9)\n'
    assert stacks.innermost_outside(text) == "bodies.py:44 in stopped"


def test_a_stopped_process_is_named_so_and_not_signalled() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        process.send_signal(signal.SIGSTOP)
        while stacks.ask(process.pid) != "stopped":
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert stacks.ask(process.pid) == "dead"


def test_a_process_that_py_spy_cannot_read_is_left_out() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        assert stacks.from_outside([process.pid], 3.0, native=False) == {}
        process.kill()
