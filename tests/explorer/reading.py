"""A second reader of program files, kept apart from the product's own so that a mistake in one shows against the other.

It accepts only valid programs and complains about nothing: what is tested here is meaning, not error texts.
Nothing of ``harness`` is imported, on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}


@dataclass
class Call:
    """One operation as a rank would issue it. ``stream`` numbers it, ``parts`` says which parts its instance has."""

    rank: int
    part: tuple[Any, ...]  # ("send" | "recv" | "member", rank)
    stream: tuple[Any, ...]
    parts: tuple[tuple[Any, ...], ...]
    signature: tuple[Any, ...]
    label: str
    group: tuple[Any, ...] | None  # (name, ranks); None for a creation, which runs on the whole world


@dataclass
class Statement:
    """``what`` is one of issue, wait, sync, tell, hear. ``waits``: an issue that also waits for its completion."""

    what: str
    calls: list[Call] = field(default_factory=list)
    handle: str | None = None
    waits: bool = False
    peer: int = -1


@dataclass
class Source:
    """A program as read: ``threads[rank]`` holds that rank's lists of statements, one a thread."""

    world: int
    threads: list[list[list[Statement]]]
    expect: dict[str, set[str]]
    order: str | None


def read(text: str) -> Source:
    """Read a program file's text."""
    page = yaml.safe_load(text)
    world = page["world"]
    header = {name: tuple(ranks) for name, ranks in (page.get("groups") or {}).items()}
    bodies: list[Any] = [[] for _ in range(world)]
    for key, body in (page.get("ranks") or {}).items():
        for rank in _ranks(str(key)):
            bodies[rank] = body
    threads = []
    for rank, body in enumerate(bodies):
        lists = list(body.values()) if isinstance(body, dict) else [body or []]
        threads.append([_thread(lines or [], rank, world, header, lists) for lines in lists])
    expect = {model: set(outcomes) for model, outcomes in (page.get("expect") or {}).items()}
    return Source(world, threads, expect, page.get("order"))


def _ranks(key: str) -> list[int]:
    ranks: list[int] = []
    for piece in key.split(","):
        low, _, high = piece.strip().partition("-")
        ranks += range(int(low), int(high or low) + 1)
    return ranks


def _thread(
    lines: list[Any], rank: int, world: int, header: dict[str, tuple[int, ...]], all_lines: list[Any]
) -> list[Statement]:
    # A name means what this thread created last under it, else the header's group, else another thread's creation.
    names = {}
    for other in all_lines:
        for line in other or []:
            if isinstance(line, str) and line.startswith("new_group"):
                name, ranks = _creation(line)
                names[name] = ranks
    names |= header
    return [_statement(line, rank, world, names) for line in lines if not str(line).startswith("compute")]


def _creation(line: str) -> tuple[str, tuple[int, ...]]:
    name, _, ranks = line.removeprefix("new_group").strip().partition("=")
    return name.strip(), tuple(int(r) for r in ranks.strip().strip("[]").split(","))


def _statement(line: Any, rank: int, world: int, names: dict[str, tuple[int, ...]]) -> Statement:
    if isinstance(line, dict):
        calls = [_call(text, rank, names) for text in line["batch"]]
        return Statement("issue", calls, line.get("as"), waits="as" not in line)
    if line == "device_sync":
        return Statement("sync")
    word = line.split()[0]
    if word == "wait":
        return Statement("wait", handle=line.split()[1])
    if word in ("tell", "hear"):
        return Statement(word, peer=int(line.split()[1]))
    if word == "new_group":
        name, ranks = _creation(line)
        names[name] = ranks
        everyone = tuple(("member", r) for r in range(world))
        call = Call(rank, ("member", rank), ("new",), everyone, ("new_group", name, ranks), "new_group", None)
        return Statement("issue", [call], waits=True)
    text, _, handle = line.partition("->")
    return Statement("issue", [_call(text, rank, names)], handle.strip() or None, waits=not handle.strip())


def _call(text: str, rank: int, names: dict[str, tuple[int, ...]]) -> Call:
    kind, name, *rest = text.split()
    keys = dict(word.split("=", 1) for word in rest)
    group = (name, names[name])
    size = (int(keys.get("n", 8)), keys.get("dtype", "float32"))
    if kind in ("send", "recv"):
        source, target = (rank, int(keys["to"])) if kind == "send" else (int(keys["from"]), rank)
        stream = ("p2p", group, source, target, int(keys.get("tag", 0)))
        parts: tuple[tuple[Any, ...], ...] = (("send", source), ("recv", target))
        return Call(rank, (kind, rank), stream, parts, ("p2p", *size), keys.get("label", "p2p"), group)
    assert kind in COLLECTIVES | ROOTED | {"destroy_group"}, text
    parts = tuple(("member", r) for r in group[1])
    signature = (kind, keys.get("root"), *size)
    return Call(rank, ("member", rank), ("collective", group), parts, signature, keys.get("label", kind), group)
