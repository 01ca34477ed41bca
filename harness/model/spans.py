"""Many numbers in few characters: ``0-7,11,13-15``."""

from __future__ import annotations

from collections.abc import Iterable


def spans(numbers: Iterable[int]) -> str:
    """The numbers, sorted, runs of three or more as ``first-last``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def bounds(text: str) -> list[tuple[int, int]]:
    """First and last of each run that `spans` wrote."""
    pieces = (piece.partition("-") for piece in text.split(",") if piece)
    return [(int(first), int(last or first)) for first, _, last in pieces]
