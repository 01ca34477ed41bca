"""YAML with line numbers: plain values, and for every path in them the line it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.model.yamlnodes import Node, read

#: Keys and indices from the top of a document down to a value.
YamlPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """``value`` is made of dict, list and str (scalars stay as written); ``lines`` maps paths to lines, from 1."""

    file: str
    value: Any
    lines: dict[YamlPath, int]

    def line(self, path: YamlPath) -> int | None:
        """The line of the value at ``path``, or of the nearest one above it."""
        while path not in self.lines:
            if not path:
                return None
            path = path[:-1]
        return self.lines[path]

    def error(self, path: YamlPath, message: str) -> InputError:
        """An error about the value at ``path``: names file, line and key."""
        return InputError(f"{dotted(path)}: {message}" if path else message, file=self.file, line=self.line(path))


def dotted(path: YamlPath) -> str:
    """``("suites", "pr", 0)`` as ``suites.pr[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def load(path: Path) -> Document:
    """The document in a file. Raises InputError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    lines: dict[YamlPath, int] = {}
    node = read(text, str(path), InputError)
    return Document(str(path), _value(node, str(path), (), lines), lines)


def _value(node: Node, file: str, path: YamlPath, lines: dict[YamlPath, int]) -> Any:
    lines[path] = node.line
    if node.kind == "scalar":
        return node.value
    if node.kind == "sequence":
        return [_value(item, file, (*path, index), lines) for index, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key, child in node.value:
        if key.kind != "scalar":
            raise InputError(f"a key must be a word, not a {key.kind}", file=file, line=key.line)
        if key.value in values:
            raise InputError(f"key {key.value!r} is given twice", file=file, line=key.line)
        values[key.value] = _value(child, file, (*path, key.value), lines)
        lines[(*path, key.value)] = key.line  # a fault in a block is looked for where its key stands
    return values
