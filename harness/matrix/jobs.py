"""A suite as the jobs of a CI: one per machine and shard."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import UsageError
from harness.matrix.plan import Matrix

#: GitHub starts no more jobs from one matrix.
MOST_JOBS = 256


def jobs(matrix: Matrix, suites: Iterable[str]) -> list[dict[str, object]]:
    """For each job its ``name``, ``slug``, ``runs_on`` (labels), ``tox`` environment and pytest ``args``.

    Raises UsageError where a suite names no machines, or where there would be too many jobs.
    """
    found: list[dict[str, object]] = []
    for suite in suites:
        matrix.suite(suite)
        machines = matrix.machines[suite]
        if not machines:
            raise UsageError(f"{matrix.file}: suite {suite} names no machines; add `machines` to it")
        for name, machine in machines.items():
            for index in range(1, machine.shards + 1):
                shard = f" --shard {index}/{machine.shards}" if machine.shards > 1 else ""
                found.append(
                    {
                        "name": f"{suite} {name}" + (f" {index}/{machine.shards}" if shard else ""),
                        "slug": f"{suite}-{name}-{index}",
                        "runs_on": machine.runs_on,
                        "tox": machine.tox,
                        "args": f"scenarios --suite {suite} --strict --backend {','.join(machine.backend)}{shard}",
                    }
                )
    if len(found) > MOST_JOBS:
        raise UsageError(f"{matrix.file}: {len(found)} jobs; accepted: up to {MOST_JOBS}; use fewer shards")
    return found
