"""One input of ``harness check``, judged: a program file, a folder of flight-recorder dumps, or a cell's evidence.

All three end as the same thing: an order verdict over all groups at once, what each progress model gives, and the
certificates, as text for a person and as one JSON object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError, InputError
from harness.model import explain
from harness.model.certificate import Certificate, Where
from harness.model.operation import POINT_TO_POINT
from harness.model.order import OrderVerdict, order_of
from harness.model.outcomes import TooManyInterleavings, judge
from harness.model.program import Call, DeviceSync, Hear, Program, Statement, Tell, Wait
from harness.model.progress import Model

if TYPE_CHECKING:
    from harness.model.fast import Arrays

MODELS = ("independent", "lane", "lanes:2", "host_blocking", "first_use")
#: From so many statements on, compiling is worth its second.
LONG = 100_000


@dataclass(frozen=True)
class Under:
    """What one model gives; ``outcomes`` is None where the search gave up, for the reason in ``trouble``."""

    outcomes: frozenset[str] | None
    certificate: Certificate | None = None
    expected: frozenset[str] | None = None
    trouble: str = ""

    @property
    def met(self) -> bool:
        """Whether this is what the input says it should be."""
        return self.expected is None or self.expected == self.outcomes


@dataclass(frozen=True)
class Checked:
    """The judgement of one path. ``sections`` are blocks of text, the most telling first."""

    path: str
    kind: str
    order: str
    models: Mapping[str, Under]
    sections: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    expected_order: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """No hazard and no failure: the order is consistent, every model completes, and the input says the same."""
        fine = all(under.outcomes == frozenset({"completes"}) and under.met for under in self.models.values())
        return fine and self.order == "consistent" and self.expected_order in (None, "consistent")

    def to_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        models: dict[str, dict[str, Any]] = {}
        for name, under in self.models.items():
            models[name] = {
                "outcomes": None if under.outcomes is None else sorted(under.outcomes),
                "certificate": None if under.certificate is None else under.certificate.to_json(),
            }
            if under.trouble:
                models[name]["trouble"] = under.trouble
        return {"path": self.path, "order": self.order, "models": models, "kind": self.kind, **self.more} | (
            {"assumed": list(self.assumed)} if self.assumed else {}
        )

    def text(self) -> str:
        """For a person: the verdict, the cycle, the rest."""
        return "\n\n".join([self._headline(), *self.sections, self._table()])

    def _headline(self) -> str:
        if self.clean:
            return f"{self.path}: clean"
        bad: dict[str, list[str]] = {}
        for name, under in self.models.items():
            words = {"unknown"} if under.outcomes is None else under.outcomes - {"completes"}
            for word in sorted(words):
                bad.setdefault(word, []).append(name)
        found = [f"{word} under {', '.join(names)}" for word, names in bad.items()]
        if self.order != "consistent":
            found.insert(0, f"order {self.order}")
        return f"{self.path}: {'; '.join(found) or 'not as expected'}"

    def _table(self) -> str:
        width = max(map(len, self.models), default=0)
        rows = []
        for name, under in self.models.items():
            shown = under.trouble if under.outcomes is None else ", ".join(sorted(under.outcomes))
            if not under.met and under.expected is not None:
                shown += f"   (the file expects {', '.join(sorted(under.expected))})"
            rows.append(f"  {name:<{width}}  {shown}")
        if self.expected_order not in (None, self.order):
            rows.append(f"  order: {self.order}   (the file expects {self.expected_order})")
        rows += [f"  assumed: {sentence}" for sentence in self.assumed]
        return "\n".join(rows)


# --- program files ------------------------------------------------------------------------------------------


def check_program(path: Path, models: Sequence[str] = ()) -> Checked:
    """Judge a program file. Raises ProgramError."""
    program = Program.load(path)
    return _checked(program, str(path), "program", models)


def _checked(
    program: Program,
    path: str,
    kind: str,
    models: Sequence[str] = (),
    places: Mapping[int, Where] | None = None,
) -> Checked:
    """``places`` maps statement lines to the code they stand for, where that isn't the program itself."""
    names = list(models) or list(dict.fromkeys([*_default_models(program), *program.expect]))
    arrays = _arrays(program)
    judged = {name: _under(program, name, places, arrays) for name in names}
    histories = program.histories()
    try:
        verdict = order_of(histories)
    except HarnessError as error:
        return Checked(path, kind, "unknown", judged, (str(error),), expected_order=program.order)
    sections = []
    if verdict.verdict == "cyclic":
        sections.append(_order_text(program, verdict, path, places))
    telling = _most_telling(judged)
    if telling is not None:
        sections.append(explain.certificate(telling))
    if len(verdict.cycle) == 2 and verdict.cycle[0].rank != verdict.cycle[1].rank:
        left, right = sorted(link.rank for link in verdict.cycle)
        sections.append(explain.side_by_side(histories, left, right))
    if verdict.verdict == "cyclic":
        sections.append(explain.remedy(histories, segments(program)))
    more = {"cycle": [_link(link) for link in verdict.cycle]} if verdict.cycle else {}
    return Checked(path, kind, verdict.verdict, judged, tuple(sections), expected_order=program.order, more=more)


def _default_models(program: Program) -> Iterator[str]:
    yield from MODELS
    calls = (s for threads in program.ranks.values() for t in threads.values() for s in t if isinstance(s, Call))
    if any(op.kind in POINT_TO_POINT for call in calls for op in call.ops):
        yield from (f"{name}+buffered" for name in MODELS)


def _arrays(program: Program) -> Arrays | None:
    """The compiled form, of programs without threads that are long enough to be worth it."""
    calls = [t for rank in range(program.world) for t in program.threads(rank).values()]
    if len(calls) > program.world or sum(map(len, calls)) < LONG:
        return None
    from harness.model import fast
    from harness.model.compact import arrays_of

    return arrays_of(program) if fast.AVAILABLE else None


def _under(program: Program, model: str, places: Mapping[int, Where] | None, arrays: Arrays | None) -> Under:
    expected = frozenset(program.expect[model]) if model in program.expect else None
    if arrays is not None:
        from harness.model.fast import run, settings

        outcomes = run(arrays, **settings(Model.parse(model))).outcomes
        if outcomes == {"completes"}:  # else the plain machine is asked again, for its certificate
            return Under(outcomes, None, expected)
    try:
        judgement = judge(program, model)
    except TooManyInterleavings as error:
        return Under(None, expected=expected, trouble=f"unknown: {error}")
    proof = judgement.certificate
    if proof is not None and places is not None:
        proof = _placed(proof, places)
    return Under(judgement.outcomes, proof, expected)


def _most_telling(judged: Mapping[str, Under]) -> Certificate | None:
    """The first certificate with a cycle, else the first with a clash, else the first."""
    proofs = [under.certificate for under in judged.values() if under.certificate is not None]
    for having in ("cycle", "clashes"):
        for proof in proofs:
            if getattr(proof, having):
                return proof
    return proofs[0] if proofs else None


def segments(program: Program) -> dict[tuple[int, str], list[int]]:
    """For each thread, which of its calls a host wait separates: equal numbers have none between them."""
    found = {}
    for rank in range(program.world):
        for thread, statements in program.threads(rank).items():
            number, numbers = 0, []
            for statement in statements:
                if isinstance(statement, Call):
                    numbers.append(number)
                    number += statement.handle is None
                elif isinstance(statement, Wait | DeviceSync | Hear):
                    number += 1
            found[rank, thread] = numbers
    return found


def _order_text(program: Program, verdict: OrderVerdict, path: str, places: Mapping[int, Where] | None) -> str:
    """The cycle, each link with the two lines of code it stands on."""
    lines = explain.order(verdict, program.histories()).split("\n")
    rows = [lines[0]]
    for link, line in zip(verdict.cycle, lines[1:], strict=True):
        calls = [s for s in program.threads(link.rank)[link.thread] if isinstance(s, Call)]
        first, then = (_place(calls[at].line, path, places) for at in link.at)
        rows += [line, f"      {first}, then {then}"]
    return "\n".join(rows)


def _place(line: int, path: str, places: Mapping[int, Where] | None) -> str:
    where = ((path, line, ""),) if places is None else places.get(line, ())
    return f"{Path(where[0][0]).name}:{where[0][1]}" if where else "an unknown line"


def _link(link: Any) -> dict[str, Any]:
    return {"rank": link.rank, "thread": link.thread, "first": str(link.first), "then": str(link.then)}


def _placed(proof: Certificate, places: Mapping[int, Where]) -> Certificate:
    """The certificate with the code's own lines in place of those of the evidence."""

    def code(where: Where) -> Where:
        return places.get(where[0][1], ()) if where else ()

    return replace(
        proof,
        cycle=tuple(replace(step, where=code(step.where)) for step in proof.cycle),
        blocked=tuple(replace(b, where=code(b.where)) for b in proof.blocked),
        clashes=tuple(
            replace(c, left_where=code(c.left_where), right_where=code(c.right_where)) for c in proof.clashes
        ),
    )


# --- evidence -----------------------------------------------------------------------------------------------


def check_evidence(path: Path, models: Sequence[str] = ()) -> Checked:
    """Judge a cell's evidence: what it recorded as a program, beside the verdict of the run itself."""
    from harness.record.evidence import read
    from harness.record.verdict import verdict

    lines = read(path)
    try:
        program, places = program_of(lines, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"is no evidence this version understands: {error!r}", file=path) from None
    ran = verdict(lines)
    checked = _checked(program, str(path), "evidence", models, places)
    if not program.ranks:
        raise InputError("records no operation", file=path)
    cut_short = "what ranks would have issued after the run ended is unknown"
    headline = f"The run itself: {ran.verdict}, order {ran.order}."
    return replace(
        checked,
        sections=(*checked.sections, headline),
        assumed=(cut_short,) if ran.verdict != "completes" else (),
        more={**checked.more, "verdict": ran.verdict},
    )


def program_of(lines: Sequence[Mapping[str, Any]], path: Path) -> tuple[Program, dict[int, Where]]:
    """The recorded events as a program, and the code behind each of its statements (by its line)."""
    from harness.record.lines import parse_operation

    ranks: dict[int, dict[str, list[Statement]]] = {}
    places: dict[int, Where] = {}
    owner: dict[tuple[int, int], tuple[str, str]] = {}
    world = next((line["world"] for line in lines if line["type"] == "world"), 0)
    for number, line in enumerate(lines, 1):
        if line["type"] not in ("issue", "wait", "tell", "hear"):
            continue
        rank, thread = line["rank"], line["thread"]
        world = max(world, rank + 1)
        statements = ranks.setdefault(rank, {}).setdefault(thread, [])
        places[number] = tuple((str(f), int(n), str(name)) for f, n, name in line.get("where") or ())
        if line["type"] == "tell":
            statements.append(Tell(line["to"], number))
        elif line["type"] == "hear":
            statements.append(Hear(line["source"], number))
        elif line["type"] == "issue":
            ops = tuple(parse_operation(op) for op in line["ops"])
            handle = f"c{line['seq']}"
            for offset in range(len(ops)):
                owner[rank, line["seq"] + offset] = (thread, handle)
            statements.append(Call(ops, handle, (None,) * len(ops), batch=len(ops) > 1, line=number))
        else:
            handles = [owner[rank, seq] for seq in line["seqs"] if (rank, seq) in owner]
            # A handle belongs to its thread: a wait for another thread's call says nothing a program can say.
            mine = dict.fromkeys(handle for thread_of, handle in handles if thread_of == thread)
            statements += [Wait(handle, number) for handle in mine]
    program = Program(
        world=max(world, 1),
        ranks={rank: {t: tuple(s) for t, s in threads.items()} for rank, threads in sorted(ranks.items())},
        name=path.stem,
        path=str(path),
    )
    return program, places


# --- dumps --------------------------------------------------------------------------------------------------


def check_dumps(path: Path, models: Sequence[str] = ()) -> Checked:
    """Judge a folder of flight-recorder dumps. Raises InputError naming the file that cannot be used."""
    from harness.record.flight.judge import judge as judge_dumps

    found = judge_dumps(path, models or None)
    judged = {name: Under(outcomes, proof) for name, (outcomes, proof) in found.models.items()}
    sections = []
    if found.order.cycle:
        rows = ["order: CYCLIC (no one order of all operations serves every rank)"]
        if not found.incomplete:
            rows.append("  nothing is recorded as incomplete: it did not hang this time")
        for link, (first, then), ranks in zip(found.order.cycle, found.places, found.followers, strict=True):
            rows.append(f"  rank {link.rank} issues {found.names[link.first]} before {found.names[link.then]}")
            if len(ranks) > 1:
                rows.append(f"      as do {len(ranks)} in all: {explain.ranks(ranks)}")
            if first and then:
                rows.append(f"      {_code(first)}, then {_code(then)}")
        if found.common:
            rows.append("  An order that every rank could follow, as most do:")
            rows += [f"    {number}. {found.names[key]}" for number, key in enumerate(found.common[:20], 1)]
        sections.append("\n".join(rows))
    telling = _most_telling(judged)
    if telling is not None:
        sections.append(explain.certificate(telling))
    sections.append(
        f"{len(found.ranks)} ranks, {found.operations} operations, {found.incomplete} recorded as incomplete."
    )
    more: dict[str, Any] = {"ranks": len(found.ranks), "operations": found.operations, "incomplete": found.incomplete}
    if found.order.cycle:
        more["cycle"] = [
            _link(link) | {"first_where": [list(f) for f in first], "then_where": [list(f) for f in then]}
            for link, (first, then) in zip(found.order.cycle, found.places, strict=True)
        ]
    return Checked(str(path), "dumps", found.order.verdict, judged, tuple(sections), found.assumed, more=more)


def _code(where: Where) -> str:
    file, line, function = where[0]
    return f"{Path(file).name}:{line} in {function}"
