"""What ``matrix.yaml`` may say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.matrix.document import Document, YamlPath

#: Verdicts an expectation may name; ``unknown`` (the checker itself failed) can't be expected.
VERDICTS = ("completes", "deadlock", "missing", "mismatch", "silent_mix", "wrong_values", "crashed", "timeout")
ORDERS = ("consistent", "cyclic")


def _outcome(text: str) -> str:
    verdict, _, order = text.partition(" ")
    if verdict not in VERDICTS or (order and order not in ORDERS):
        raise ValueError(f"accepted: one of {', '.join(VERDICTS)}, alone or followed by {' or '.join(ORDERS)}")
    return text


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | dict) else [value]


Names = Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
Worlds = Annotated[list[Annotated[int, Field(ge=1, le=4096)]], BeforeValidator(_listed), Field(min_length=1)]
Params = dict[str, Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Block(_Strict):
    """Some cells: every combination of the lists. A single value stands for a list of one."""

    scenario: Names
    backend: Names
    world: Worlds
    topology: Names
    arrival: Names
    variant: Names
    params: Params = Field(default_factory=dict)
    #: Why these cells may be skipped on a machine that can't run them; without it a skip fails a strict run.
    may_skip: str = ""


class Machine(_Strict):
    """Where a CI runs a part of a suite: the labels of its runner, which backends it serves, in how many shards."""

    runs_on: Names
    backend: Names
    #: The environment of tox.ini that runs it.
    tox: str
    shards: Annotated[int, Field(ge=1, le=256)] = 1


class Suite(_Strict):
    about: str
    #: Seconds a cell may take before it is stopped.
    limit: Annotated[float, Field(gt=0)] = 60.0
    cells: Annotated[list[Block], Field(min_length=1)]
    machines: dict[str, Machine] = Field(default_factory=dict)


class Rule(_Strict):
    """An expectation. Conditions left out hold for all; text may use ``*``; the first rule that holds applies."""

    scenario: Names = Field(default_factory=lambda: ["*"])
    backend: Names = Field(default_factory=lambda: ["*"])
    world: Worlds | None = None
    topology: Names = Field(default_factory=lambda: ["*"])
    arrival: Names = Field(default_factory=lambda: ["*"])
    variant: Names = Field(default_factory=lambda: ["*"])
    params: Params = Field(default_factory=dict)
    #: A verdict, or a verdict and an order: ``deadlock cyclic``.
    expect: Annotated[list[Annotated[str, AfterValidator(_outcome)]], BeforeValidator(_listed), Field(min_length=1)]
    because: str = ""


class MatrixFile(_Strict):
    #: Version of the format. Scalars come as text.
    matrix: Literal["1"]
    suites: Annotated[dict[str, Suite], Field(min_length=1)]
    expectations: Annotated[list[Rule], Field(min_length=1)]


def validated(document: Document) -> MatrixFile:
    """The document as a matrix. Raises InputError for the first fault in the file."""
    try:
        return MatrixFile.model_validate(document.value)
    except ValidationError as error:
        faults = [(_yaml_path(document, fault["loc"]), fault) for fault in error.errors()]
        # The first in the file, but what is there before what is missing: one is often the other misspelt.
        path, fault = min(faults, key=lambda f: (f[1]["type"] == "missing", document.line(f[0]) or 0, len(f[0])))
        raise document.error(path, _message(path, fault)) from None


def _yaml_path(document: Document, loc: tuple[str | int, ...]) -> YamlPath:
    """The part of a pydantic location that exists in the file (a missing key keeps its name)."""
    path: YamlPath = ()
    for part in loc:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _message(path: YamlPath, fault: Any) -> str:
    kind, given, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "missing":
        return f"the key {fault['loc'][-1]!r} is missing"
    if kind == "extra_forbidden":
        return f"the key is unknown (value {given!r}); accepted: {', '.join(_keys_beside(path))}"
    if kind == "literal_error":
        return f"{given!r} is not accepted; accepted: {context['expected']}"
    if kind == "value_error":
        return f"{given!r} is not accepted; {context['error']}"
    return f"{given!r} is not accepted: {fault['msg']}"


def _keys_beside(path: YamlPath) -> list[str]:
    if len(path) < 2:
        return list(MatrixFile.model_fields)
    if path[0] == "expectations":
        return list(Rule.model_fields)
    if len(path) < 4:
        return list(Suite.model_fields)
    return list((Block if path[2] == "cells" else Machine).model_fields)
