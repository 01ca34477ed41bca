"""How soon a fault must be told, and everything be gone."""

from __future__ import annotations

import os

#: From the fault (or the time limit) to the verdict, in seconds.
BOUND = 2.0


def bound() -> float:
    """The bound here and now: longer where more than four processes compete for each core.

    A machine that runs the tests and little else keeps to `BOUND`.
    """
    return BOUND * max(1.0, os.getloadavg()[0] / (4 * (os.cpu_count() or 1)))
