"""The swimlane picture as text, for terminals and Markdown: a line per rank, its operations in the order of issue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from string import ascii_uppercase

from harness.record.evidence import read
from harness.report.picture import Line, Mark, picture, shown

#: More lanes than this are left out, those of the wait cycle and the divergence last.
_MOST_LANES = 16


def lanes(lines: Iterable[Line], width: int = 100) -> str:
    """The picture of a cell's evidence, as wide as it takes up to ``width``; empty if nothing was issued.

    ``A7`` is the 8th collective on group A; ``A2>3.7`` the 8th message from rank 2 to 3. It shows the end where
    something never completed, else the surroundings of the first divergence.
    """
    drawn = picture(lines)
    if not drawn.marks:
        return ""
    letters = _letters(drawn.marks)
    cycle = {end for arrow in drawn.arrows for end in (arrow.here, arrow.there)}
    parted = set(drawn.parted)
    rows: dict[tuple[int, str], list[str]] = {}
    places: list[int] = []
    for mark in sorted(drawn.marks, key=lambda mark: (mark.rank, mark.seq)):
        row = rows.setdefault((mark.rank, mark.thread), [])
        at = mark.rank, mark.seq
        if at in parted:
            places.append(len(row))
        flags = "*" if at in cycle else "~" if mark.done is None else ""
        row.append(("!" if at in parted else "") + _name(mark, letters) + flags)
    stuck = any(mark.done is None for mark in drawn.marks)
    focus = None if stuck or not places else min(places)
    matter = {rank for rank, _ in cycle | parted}
    return "\n".join(_table(rows, focus, matter, width) + _key(letters, rows))


def lanes_of(path: Path, width: int = 100) -> str:
    """The picture of an evidence file; empty if the file holds none that can be drawn."""
    try:
        return lanes(read(path), width)
    except Exception:  # noqa: BLE001 - a picture is an extra; whatever the evidence holds, the verdict is shown
        return ""


def _letters(marks: Iterable[Mark]) -> dict[str, str]:
    """Each group's letter, by first use: A to Z, then A1, B1 and on."""
    groups = dict.fromkeys(shown(mark.op.group) for mark in marks)
    return {group: ascii_uppercase[at % 26] + (f"{at // 26}_" if at >= 26 else "") for at, group in enumerate(groups)}


def _name(mark: Mark, letters: dict[str, str]) -> str:
    key, letter = mark.key, letters[shown(mark.op.group)]
    if key.stream == "n":
        return f"new.{letter}"
    return f"{letter}{key.src}>{key.dst}.{key.number}" if key.stream == "p" else f"{letter}{key.number}"


def _table(rows: dict[tuple[int, str], list[str]], focus: int | None, matter: set[int], width: int) -> list[str]:
    heads = {lane: f"rank {lane[0]}" + ("" if lane[1] == "main" else f" {lane[1][:12]}") for lane in rows}
    head = max(map(len, heads.values()))
    column = max(len(token) for row in rows.values() for token in row)
    longest = max(map(len, rows.values()))
    room = max(1, (width - head - 8) // (column + 1))
    start = max(0, longest - room) if focus is None else max(0, min(focus - room // 2, longest - room))
    chosen = sorted(sorted(rows, key=lambda lane: lane[0] not in matter)[:_MOST_LANES])
    lines = []
    for lane in chosen:
        tokens = rows[lane][start : start + room]
        before = f"+{start}" if start else ""
        after = f" +{len(rows[lane]) - start - room}" if len(rows[lane]) > start + room else ""
        drawn = " ".join(f"{token:<{column}}" for token in tokens).rstrip()
        lines.append(f"{heads[lane]:<{head}} {before:>5} {drawn}{after}")
    if len(rows) > len(chosen):
        lines.append(f"and {len(rows) - len(chosen)} more")
    return lines


def _key(letters: dict[str, str], rows: dict[tuple[int, str], list[str]]) -> list[str]:
    groups = [f"{letter} {group}" for group, letter in list(letters.items())[:12]]
    tokens = [token for row in rows.values() for token in row]
    signs = [
        text
        for sign, text in (("*", "* in the wait cycle"), ("~", "~ never completed"), ("!", "! where ranks first part"))
        if any(sign in token for token in tokens)
    ]
    return ["", "  ".join(groups) + (" ..." if len(letters) > 12 else ""), *([", ".join(signs)] if signs else [])]
