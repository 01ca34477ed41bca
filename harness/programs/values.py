"""Inputs that say whose data they are, so that a result shows what was mixed into it.

Every label of a program gets a power of a base above the world's size. A sum of inputs then has one digit a label, the
number of ranks that put that label in; a gathered slot shows its label as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: The largest value below which every integer is exact, by dtype; others are not decoded.
EXACT = {
    "float64": 2**53,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int64": 2**63 - 1,
    "int32": 2**31 - 1,
    "int16": 2**15 - 1,
    "int8": 127,
    "uint8": 255,
}


@dataclass(frozen=True)
class Code:
    """The values of a program's labels in a world of ``world`` ranks."""

    labels: tuple[str, ...]
    world: int

    @property
    def base(self) -> int:
        """No label can be put in as often as this."""
        return self.world + 1

    def value(self, label: str, dtype: str) -> int | None:
        """What to fill the input with; None if a sum would not be exact in this dtype."""
        power = self.base ** self.labels.index(label)
        return power if power * self.base <= EXACT.get(dtype, 0) else None

    def labels_in(self, value: float) -> dict[str, int] | None:
        """How often each label went into ``value``; None if it is no sum of labels."""
        rest = int(value)
        if rest != value or rest < 0:
            return None
        counts = {}
        for label in self.labels:
            rest, digit = divmod(rest, self.base)
            if digit:
                counts[label] = digit
        return None if rest else counts


def mixture(code: Code, values: Sequence[float]) -> dict[str, int]:
    """How often each label is in a result, given one value of each of its slots; ``?`` counts what is no label."""
    found: dict[str, int] = {}
    for value in values:
        for label, count in (code.labels_in(value) or {"?": 1}).items():
            found[label] = found.get(label, 0) + count
    return found
