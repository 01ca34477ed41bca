"""What many runs say together: each cell over time, flakes, time drift, and two runs compared. Entries in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.report.store import Entry

#: A drift is a change of the median by this factor and by so many seconds, over the last ``RECENT`` runs.
FACTOR, SECONDS, RECENT = 1.5, 0.2, 3
#: A strip's letter for each verdict; what is not as expected is a capital.
_LETTERS = {
    "completes": "c",
    "deadlock": "d",
    "missing": "m",
    "mismatch": "x",
    "silent_mix": "s",
    "wrong_values": "w",
    "crashed": "k",
    "timeout": "t",
    "skipped": "-",
    "unknown": "?",
}


@dataclass(frozen=True)
class Flake:
    """One commit, one set of versions, one cell, and several outcomes with how often each came."""

    cell: str
    token: str
    commit: str
    outcomes: Mapping[str, int]
    foreseen: bool


@dataclass(frozen=True)
class Drift:
    """A cell whose time changed: medians in seconds, before and in the last runs."""

    cell: str
    before: float
    after: float


def flakes(cells: Mapping[str, Sequence[Entry]]) -> list[Flake]:
    """Cells that came out differently though nothing had changed; ``foreseen`` where the matrix allows all of it."""
    found = []
    for cell, history in cells.items():
        groups: dict[tuple[str, str], list[Entry]] = {}
        for entry in history:
            if entry.verdict != "skipped" and entry.commit and not entry.commit.endswith("+"):
                groups.setdefault((entry.commit, repr(sorted(entry.versions.items()))), []).append(entry)
        for (commit, _), same in groups.items():
            counts: dict[str, int] = {}
            for entry in same:
                counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
            if len(counts) > 1:
                foreseen = all(entry.standing == "expected" for entry in same)
                found.append(Flake(cell, same[-1].token, commit, counts, foreseen))
    return found


def drifts(cells: Mapping[str, Sequence[Entry]]) -> list[Drift]:
    """Cells whose last runs took clearly longer or shorter than those before, the largest change first."""
    found = []
    for cell, history in cells.items():
        times = [entry.seconds for entry in history if entry.verdict not in ("skipped", "timeout")]
        if len(times) < 2 * RECENT:
            continue
        before, after = median(times[:-RECENT]), median(times[-RECENT:])
        ratio = max(before, after) / max(min(before, after), 1e-9)
        if ratio >= FACTOR and abs(after - before) >= SECONDS:
            found.append(Drift(cell, before, after))
    return sorted(found, key=lambda drift: -abs(drift.after - drift.before))


def history_text(cells: Mapping[str, Sequence[Entry]], runs: Sequence[tuple[str, str, str, int]]) -> str:
    """The strip of each cell, then flakes and drifts."""
    names = [run for run, *_ in runs]
    lines = [f"{len(names)} runs, {runs[0][1]} to {runs[-1][1]}" if runs else "no runs kept", ""]
    width = max((len(cell) for cell in cells), default=0)
    for cell, history in cells.items():
        latest = history[-1]
        lines.append(f"{cell:<{width}}  {_strip(history, names)}  {latest.outcome}, {latest.seconds:.2f} s")
    shown = {entry.verdict for history in cells.values() for entry in history}
    letters = ", ".join(f"{letter} {verdict}" for verdict, letter in _LETTERS.items() if verdict in shown)
    lines += ["", f"A column per run, oldest first: {letters}; a capital is unexpected, a dot did not run."]
    lines += ["", *_flake_lines(flakes(cells)), *_drift_lines(drifts(cells))]
    return "\n".join(lines) + "\n"


def _strip(history: Sequence[Entry], runs: Sequence[str]) -> str:
    at = {entry.run: entry for entry in history}
    return "".join(_letter(at[run]) if run in at else "." for run in runs)


def _letter(entry: Entry) -> str:
    letter = _LETTERS.get(entry.verdict, "?")
    return letter if entry.standing in ("expected", "skipped") else letter.upper() if letter != "-" else "!"


def _flake_lines(found: Sequence[Flake]) -> list[str]:
    if not found:
        return ["flakes (one commit and versions, several outcomes): none"]
    lines = ["flakes (one commit and versions, several outcomes):"]
    for flake in sorted(found, key=lambda flake: flake.foreseen):
        counts = ", ".join(f"{outcome} ({count})" for outcome, count in flake.outcomes.items())
        note = "  all foreseen by the matrix" if flake.foreseen else ""
        lines += [f"  {flake.cell} at {flake.commit[:10]}: {counts}{note}", f"    harness replay {flake.token}"]
    return lines


def _drift_lines(found: Sequence[Drift]) -> list[str]:
    if not found:
        return [f"time drift (last {RECENT} runs against those before): none"]
    lines = [f"time drift (median of the last {RECENT} runs against those before):"]
    lines += [f"  {d.cell}: {d.before:.2f} s -> {d.after:.2f} s ({d.after / max(d.before, 1e-9):.1f}x)" for d in found]
    return lines


# --- two runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """What differs between two runs; cells by id. ``changed`` are those whose verdict or order differs."""

    changed: list[tuple[Entry, Entry]]
    slower: list[tuple[Entry, Entry]]
    only_before: list[str]
    only_after: list[str]
    versions: list[tuple[str, str, str]]
    same: int

    def __bool__(self) -> bool:
        return bool(self.changed or self.only_before or self.only_after)


def difference(before: Sequence[Entry], after: Sequence[Entry]) -> Difference:
    """Two runs compared, cell by cell."""
    left, right = {e.cell: e for e in before}, {e.cell: e for e in after}
    both = [(left[cell], right[cell]) for cell in left if cell in right]
    changed = [(a, b) for a, b in both if a.outcome != b.outcome]
    ours, theirs = _versions(before), _versions(after)
    return Difference(
        changed=changed,
        slower=[(a, b) for a, b in both if "skipped" not in (a.verdict, b.verdict) and _drifted(a.seconds, b.seconds)],
        only_before=[cell for cell in left if cell not in right],
        only_after=[cell for cell in right if cell not in left],
        versions=[
            (name, ours.get(name, "none"), theirs.get(name, "none"))
            for name in sorted(ours | theirs)
            if ours.get(name) != theirs.get(name)
        ],
        same=len(both) - len(changed),
    )


def _versions(entries: Sequence[Entry]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        for name, version in entry.versions.items():
            found.setdefault(name, {})[version] = None
    return {name: " and ".join(versions) for name, versions in found.items()}


def _drifted(before: float, after: float) -> bool:
    return abs(after - before) >= SECONDS and max(before, after) >= FACTOR * min(before, after)


def difference_text(found: Difference, before: str, after: str) -> str:
    """The difference, what matters first. ``before`` and ``after`` name the runs."""
    lines = [f"{before} -> {after}: {len(found.changed)} changed, {found.same} the same"]
    for a, b in sorted(found.changed, key=lambda pair: pair[1].standing != "unexpected"):
        lines += [f"  {a.cell}", f"    {a.outcome} ({a.standing}) -> {b.outcome} ({b.standing})"]
        if b.standing == "unexpected":
            lines.append(f"    harness replay {b.token}")
    lines += [f"  only in {before}: {cell}" for cell in found.only_before]
    lines += [f"  only in {after}: {cell}" for cell in found.only_after]
    lines += [f"  time: {a.cell}: {a.seconds:.2f} s -> {b.seconds:.2f} s" for a, b in found.slower]
    lines += [f"  version: {name} {old} -> {new}" for name, old, new in found.versions]
    return "\n".join(lines) + "\n"
