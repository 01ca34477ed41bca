"""The conformance suite that any backend runs, shipped for backends of one's own.

``conformance("mine")`` runs every call of torch.distributed with known values and every hazard, in worlds of real
ranks, and returns a `Report`: what was wrong, and which progress model the backend behaves like. In a test suite::

    def test_conformance():
        report = harness.testing.conformance("mine")
        assert report.ok, report

From a shell: ``python -m harness.testing mine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness import backends
from harness.errors import UnsupportedError
from harness.model.progress import Model
from harness.record.lines import Line
from harness.record.verdict import Verdict, verdict
from harness.testing.hazards import HAZARDS, MODELS, Hazard
from harness.testing.values import CASES, NotOffered, run_cases
from harness.world import pool

#: What every collective is tried with; the sums stay exact in all of them.
DTYPES = ("float32", "bfloat16", "float16", "int64")
#: A hazard that takes longer is stopped, unproven; in seconds.
LIMIT = 20.0


@dataclass(frozen=True)
class Report:
    """What the suite found of one backend.

    ``wrong_values`` has a line per wrong value, ``verdicts`` what each hazard ended in, ``unexpected`` a line per
    hazard that did not end as the backend's own model says, ``behaves_like`` the models that all hazards agree with.
    ``not_offered`` has what the backend refuses as unsupported, with its reason; hazards that need it are not judged.
    """

    backend: str
    wrong_values: tuple[str, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unexpected: tuple[str, ...] = ()
    behaves_like: tuple[str, ...] = ()
    not_offered: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all values were right and every hazard ended as the model says."""
        return not self.wrong_values and not self.unexpected

    def __str__(self) -> str:
        lines = [f"backend {self.backend}: {'conforms' if self.ok else 'DOES NOT CONFORM'}"]
        lines += [f"  {line}" for line in (*self.wrong_values, *self.unexpected)]
        width = max(map(len, self.verdicts), default=0)
        lines += [
            f"  {name:{width}}  {found.verdict:10}  {HAZARDS[name].about}" for name, found in self.verdicts.items()
        ]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.not_offered.items():
            reasons.setdefault(reason, []).append(name)
        lines += [f"  not offered: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
        lines.append(f"behaves like: {', '.join(self.behaves_like) or 'no model'}")
        return "\n".join(lines)


def conformance(backend: str, *, worlds: Sequence[int] = (2, 4), hazards: Iterable[str] = HAZARDS) -> Report:
    """Run the whole suite. Raises UsageError for an unknown backend, and what starting a world raises."""
    wrong, lacking = [], {}
    for world in worlds:
        for line, text in _values(backend, world, DTYPES):
            if isinstance(text, NotOffered):
                lacking[line.rpartition(": ")[2]] = str(text)
            else:
                wrong.append(f"{line}: {text}")
    found = {}
    for name in hazards:
        try:
            found[name] = run_hazard(HAZARDS[name], backend)
        except UnsupportedError as error:
            lacking[name] = str(error)
    objections = [objection(HAZARDS[name], backend, result) for name, result in found.items()]
    unexpected = [text for text in objections if text is not None]
    return Report(backend, tuple(wrong), found, tuple(unexpected), behaves_like(found, backend), lacking)


def wrong_values(backend: str, world: int, dtypes: Sequence[str] = DTYPES) -> list[str]:
    """Every collective over the world and over a smaller group; a line for each value that was wrong."""
    return [f"{at}: {text}" for at, text in _values(backend, world, dtypes) if not isinstance(text, NotOffered)]


def _values(backend: str, world: int, dtypes: Sequence[str]) -> list[tuple[str, str]]:
    """Where something was wrong or not offered, and what."""
    found = []
    for ranks in (None, list(range(world))[::-1][: max(world // 2, 1) + 1]):
        run = pool.get(world, backend).run(run_cases, tuple(CASES), tuple(dtypes), ranks, limit=120.0)
        for outcome in run.ranks:
            where = f"{world} ranks, rank {outcome.rank}"
            if outcome.ok:
                found += [(f"{where}: {name}", text) for name, text in outcome.value.items()]
            elif outcome.error is not None:
                found.append((f"{where}: {outcome.error.type}", outcome.error.message))
    return found


def run_hazard(hazard: Hazard, backend: str, *, limit: float = LIMIT) -> Verdict:
    """The verdict of one hazard on the backend, from its evidence. Raises UnsupportedError if it lacks a call."""
    evidence: list[Line] = []
    run = pool.get(hazard.world, backend).run(hazard.body, sink=evidence.append, limit=limit)
    for outcome in run.ranks:
        if outcome.error is not None and isinstance(outcome.error.exception, UnsupportedError):
            raise outcome.error.exception
    return verdict(evidence)


def objection(hazard: Hazard, backend: str, found: Verdict) -> str | None:
    """What is unexpected about the verdict, in a line; None if it is as the backend's model says."""
    spec = backends.get(backend).spec
    expected = hazard.expect.get(Model.parse(spec.model).name)
    if expected is None or not (hazard.real or spec.granting):
        return None
    # A run that was cut short has shown only part of its order.
    orders = (hazard.order,) if expected in ("completes", "silent_mix") else (hazard.order, "unknown")
    if _same(expected, found.verdict, backend) and found.order in orders:
        return None
    wanted = f"{expected}, order {hazard.order}"
    return f"{hazard.name}: {found.verdict}, order {found.order}; expected {wanted}\n{found.explanation}"


def _same(expected: str, verdict: str, backend: str) -> bool:
    """Whether the verdict is the one expected; an engine may report what is stuck by an error of its own."""
    reported = expected in ("deadlock", "missing", "mismatch") and backends.get(backend).spec.own_limit > 0
    return verdict == expected or (reported and verdict == "crashed")


def behaves_like(found: dict[str, Verdict], backend: str) -> tuple[str, ...]:
    """The models that give every verdict found, among the hazards that a real engine can be held to."""
    judged = [(HAZARDS[name], result.verdict) for name, result in found.items() if HAZARDS[name].real]
    return tuple(m for m in MODELS if all(_same(hazard.expect[m], end, backend) for hazard, end in judged))
