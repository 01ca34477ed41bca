"""What bodies noted of themselves, told beside a proof: the step and the module a rank was in, parameters by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.model.certificate import Certificate
from harness.model.spans import bounds
from harness.record.lines import Line

#: A note that is a mapping of DeepSpeed's parameter numbers to names goes by this name.
PARAMETERS = "parameters"
_DS_IDS = re.compile(r"\(ds_id ([0-9]+(?:[,-][0-9]+){0,500})\)")
#: At most so many parameters of one operation are named.
_MOST = 6


def context(evidence: Sequence[Line], proof: Certificate) -> str:
    """Text for a person: each rank of the cycle with the last plain values it noted, and its parameters' names."""
    ranks = sorted({step.rank for step in proof.cycle} or {blocked.rank for blocked in proof.blocked})
    latest: dict[int, dict[str, Any]] = {}
    for line in evidence:
        if line["type"] == "certificate":
            break
        if line["type"] == "note" and line["rank"] in ranks:
            latest.setdefault(line["rank"], {})[str(line["name"])] = line["value"]
    rows = []
    for rank, notes in sorted(latest.items()):
        plain = [f"{name} {value}" for name, value in notes.items() if isinstance(value, int | str)]
        if plain:
            rows.append(f"  rank {rank}: {', '.join(plain)}")
    named = _named(proof, latest)
    return "\n".join(
        [*(["", "What they were at:", *rows] if rows else []), *(["", "Their parameters:", *named] if named else [])]
    )


def _named(proof: Certificate, latest: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """The parameters that the cycle's operations carry, by name, where a rank noted names."""
    names: dict[int, str] = {}
    for notes in latest.values():
        if isinstance(notes.get(PARAMETERS), Mapping):
            names |= {int(number): str(name) for number, name in notes[PARAMETERS].items()}
    rows = []
    for step in proof.cycle:
        for ids in _DS_IDS.findall(step.needs):
            runs = bounds(ids)
            carried = [f"    {names[n]}" for n in sorted(names) if any(low <= n <= high for low, high in runs)]
            more = [f"    and {len(carried) - _MOST} more"] if len(carried) > _MOST else []
            rows += [f"  ds_id {ids}:", *carried[:_MOST], *more] if carried else []
    return rows
