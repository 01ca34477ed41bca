"""Set-up shared by the tests of the harness and by the scenarios."""

from __future__ import annotations

import os

# Before anything imports DeepSpeed: without it a CPU-only machine is probed for accelerators in every process.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

pytest_plugins = ["pytester"]
