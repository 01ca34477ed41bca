"""Python imports this at its start, since ``harness exec`` put this folder on the script's ``PYTHONPATH``."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys


def _chain() -> None:
    """Run the ``sitecustomize`` that this one stands before, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _attach() -> None:
    if "HARNESS_SCRIPT_SOCKET" not in os.environ:
        return
    if importlib.util.find_spec("harness") is None:
        sys.path.append(os.environ["HARNESS_SCRIPT_ROOT"])
    from harness.script import attach

    attach.prepare()


_chain()
_attach()
