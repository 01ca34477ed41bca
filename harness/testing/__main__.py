"""``python -m harness.testing BACKEND...``: runs the conformance suite and prints its report; exit 1 on failure."""

from __future__ import annotations

import sys

from harness.testing import conformance
from harness.world import pool


def main(names: list[str]) -> int:
    """Run the suite on each backend."""
    try:
        reports = [conformance(name) for name in names]
    finally:
        pool.close_all()
    sys.stdout.write("\n\n".join(map(str, reports)) + "\n")
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
