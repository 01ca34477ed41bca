"""A cell: one scenario under one backend, world, topology, arrival and variant; and its token."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from harness.errors import UsageError

#: What a scenario's parameter may be; strings that look like a number or a truth value come back as one.
Scalar = str | int | float | bool

#: The fields of a cell besides its parameters, in the order of its token.
FIELDS = ("scenario", "backend", "world", "topology", "arrival", "variant")

_SAFE = ":.+"  # beside letters, digits and `_`: characters that no shell changes


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to run. ``params`` are the scenario's own, sorted by name."""

    scenario: str
    backend: str
    world: int
    topology: str
    arrival: str
    variant: str
    params: tuple[tuple[str, Scalar], ...] = ()

    @property
    def id(self) -> str:
        """A name fit for a file and for a pytest id; distinct cells have distinct ids."""
        return self._text("-").replace("%", "=").replace(":", "~")  # artifact stores refuse a colon in a name

    @property
    def token(self) -> str:
        """Short text that names this cell and nothing else, with a checksum against a cut-off paste."""
        text = self._text("/")
        return f"{text}@{_checksum(text)}"

    @property
    def row(self) -> tuple[str, int, str, str, tuple[tuple[str, Scalar], ...]]:
        """What one row of the table shares: everything but backend and variant."""
        return (self.scenario, self.world, self.topology, self.arrival, self.params)

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in FIELDS}, "params": dict(self.params)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cell:
        return make_cell(value["params"], **{name: value[name] for name in FIELDS})

    @classmethod
    def parse(cls, token: str) -> Cell:
        """The cell a token names. The checksum may be left off by hand; a wrong one is an error.

        Raises UsageError saying which part is not understood.
        """
        text, at, given = token.strip().partition("@")
        if at and given != _checksum(text):
            raise UsageError(
                f"token {token!r}: its checksum is {given!r}, not {_checksum(text)!r}: part is missing or changed"
            )
        head, *params = text.split(",")
        parts = [unquote(part) for part in head.split("/")]
        if len(parts) != len(FIELDS) or not all(parts):
            raise UsageError(f"token {token!r}: expected {'/'.join(FIELDS).upper()}[,KEY=VALUE...][@CHECKSUM]")
        if not parts[2].isdigit() or int(parts[2]) < 1:
            raise UsageError(f"token {token!r}: world {parts[2]!r} is not a number of ranks")
        pairs: dict[str, Scalar] = {}
        for param in params:
            key, equals, value = param.partition("=")
            if not (key and equals):
                raise UsageError(f"token {token!r}: parameter {param!r} is not KEY=VALUE")
            pairs[unquote(key)] = _scalar(unquote(value))
        fields: dict[str, Any] = dict(zip(FIELDS, parts, strict=True))
        fields["world"] = int(parts[2])
        return make_cell(pairs, **fields)

    def _text(self, separator: str) -> str:
        values = [_quote(str(getattr(self, name))) for name in FIELDS]
        pairs = [f"{_quote(key)}={_quote(_text_of(value))}" for key, value in self.params]
        return ",".join([separator.join(values), *pairs])


def make_cell(params: Mapping[str, Scalar], **fields: Any) -> Cell:
    """A cell with its parameters in their one order; text that looks like a number becomes one, as from a token."""
    pairs = {key: _scalar(value) if isinstance(value, str) else value for key, value in params.items()}
    return Cell(**fields, params=tuple(sorted(pairs.items())))


def _quote(text: str) -> str:
    # Separators inside a value are escaped, so that a joined text always takes apart again.
    return quote(text, safe=_SAFE).replace("-", "%2D").replace("~", "%7E")


def _text_of(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if _text_of(value) == text:
            return value
    return text


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()) & 0xFFFF:04x}"
