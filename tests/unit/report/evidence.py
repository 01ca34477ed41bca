"""Evidence of a program under a model, as lines: what ranks would have reported, and the model's own certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.matrix.result import CellResult
from harness.model.outcomes import judge
from harness.model.program import Program
from harness.record import lines

INVERSION = """\
program: 1
name: inversion
world: 2
groups: {DP: [0, 1], EDP: [0, 1]}
ranks:
  0: [all_reduce DP, all_gather DP label=dense -> a, all_gather EDP label=expert -> b, wait a, wait b]
  1: [all_reduce DP, all_gather EDP label=expert -> b, all_gather DP label=dense -> a, wait b, wait a]
"""
RING = """\
program: 1
name: ring
world: 3
groups: {AB: [0, 1], BC: [1, 2], CA: [0, 2]}
ranks:
  0: [barrier AB -> a, barrier CA -> c, wait a, wait c]
  1: [barrier BC -> b, barrier AB -> a, wait b, wait a]
  2: [barrier CA -> c, barrier BC -> b, wait c, wait b]
"""


def evidence(text: str, model: str, result: CellResult) -> list[dict[str, Any]]:
    """Each operation takes 1 us to issue; those before the first asynchronous one complete after 10 us."""
    program = Program.parse(text)
    found: list[dict[str, Any]] = [
        {
            "type": "cell",
            "schema": 1,
            "cell": result.cell.to_json(),
            "versions": {"torch": "2"},
            "hardware": {"cores": 2},
        }
    ]
    for rank, threads in program.histories().items():
        for thread, calls in threads.items():
            for seq, ops in enumerate(calls):
                ns = 1_000_000 + 1000 * (2 * seq + rank)
                where = [["/src/train.py", 10 + seq, "step"]]
                found.append(
                    {
                        "type": "issue",
                        "rank": rank,
                        "thread": thread,
                        "seq": seq,
                        "ops": [lines.operation(op) for op in ops],
                        "where": where,
                        "ns": ns,
                    }
                )
                if ops[0].kind == "all_reduce":
                    found.append({"type": "complete", "rank": rank, "seq": seq, "ns": ns + 10_000})
    proof = judge(program, model).certificate
    if proof is not None:
        found.append({"type": "certificate", "certificate": proof.to_json(), "ns": 2_000_000})
        stopped = {"type": "harness.errors.DeadlockError", "message": "stuck", "traceback": "at train.py:12"}
        found += [lines.rank_outcome(rank, False, stopped) for rank in range(program.world)]
    found.append(lines.end(0.01, False))
    found.append({"type": "result", **result.to_json()})
    return json.loads(json.dumps(found))


def write(folder: Path, text: str, model: str, result: CellResult) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / result.evidence
    path.write_text("".join(json.dumps(line) + "\n" for line in evidence(text, model, result)))
    return path
