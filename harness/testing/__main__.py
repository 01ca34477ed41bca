"""``python -m harness.testing BACKEND...``: the conformance suite, its report, and exit code 1 if one does not conform."""

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
