"""YAML read as nodes that know their line: nothing is constructed, aliases and deep nesting are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from harness.errors import InputError, ProgramError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 8
_MAX_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """A YAML node: ``kind`` is ``mapping``, ``sequence`` or ``scalar``; ``line`` counts from 1."""

    kind: str
    line: int
    value: Any


def read(text: str, path: str | None, error: type[InputError] = ProgramError) -> Node:
    """The text's single document. Raises ``error`` with file and line for what isn't plain YAML."""
    if len(text) > _MAX_CHARACTERS:
        raise error(f"has {len(text)} characters; at most {_MAX_CHARACTERS} are read", file=path)
    loader = _LOADER(text)
    try:
        _refuse(text, path, error)
        node = loader.get_single_node()
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise error(f"is not YAML: {getattr(problem, 'problem', None) or problem}", file=path, line=line) from None
    except InputError:
        raise
    except ValueError as problem:  # characters that no YAML document may hold
        raise error(f"is not YAML: {problem}", file=path) from None
    finally:
        loader.dispose()
    if node is None:
        raise error("is empty", file=path)
    return _convert(node)


def _refuse(text: str, path: str | None, error: type[InputError]) -> None:
    """Refuse what could make a small file huge, before anything is built of it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1  # type: ignore[union-attr]  # always set by the parsers
        if isinstance(event, yaml.AliasEvent):
            raise error("YAML aliases (*name) are not accepted; write the value out", file=path, line=line)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
            if depth > _MAX_DEPTH:
                raise error(f"is nested more than {_MAX_DEPTH} deep", file=path, line=line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1


def _convert(node: Any) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return Node("mapping", line, [(_convert(key), _convert(value)) for key, value in node.value])
    if isinstance(node, yaml.SequenceNode):
        return Node("sequence", line, [_convert(item) for item in node.value])
    return Node("scalar", line, node.value)


def entries(node: Node, path: str | None, what: str, accepted: str) -> Iterator[tuple[str, int, Node]]:
    """``(key, line, value)`` of a mapping; each key once. An empty value counts as an empty mapping."""
    if node.kind == "scalar" and not node.value:
        return
    if node.kind != "mapping":
        raise ProgramError(f"{what} must be {accepted}, not a {node.kind}", file=path, line=node.line)
    seen: set[str] = set()
    for key, value in node.value:
        text = scalar(key, path, f"a key of {what}", "a word")
        if text in seen:
            raise ProgramError(f"{what}: key {text!r} is given twice", file=path, line=key.line)
        seen.add(text)
        yield text, key.line, value


def sequence(node: Node, path: str | None, what: str, accepted: str) -> list[Node]:
    """The items of a list. An empty value counts as an empty list."""
    if node.kind == "scalar" and not node.value:
        return []
    if node.kind != "sequence":
        raise ProgramError(f"{what} must be {accepted}, not a {node.kind}", file=path, line=node.line)
    items: list[Node] = node.value
    return items


def scalar(node: Node, path: str | None, what: str, accepted: str) -> str:
    """The text of a scalar as written."""
    if node.kind != "scalar":
        raise ProgramError(f"{what} must be {accepted}, not a {node.kind}", file=path, line=node.line)
    text: str = node.value
    return text
