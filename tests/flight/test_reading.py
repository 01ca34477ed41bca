"""Dumps are untrusted: nothing in them runs, whatever they hold costs bounded time and memory; both readers agree."""

from __future__ import annotations

import json
import os
import pickle
import resource
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.errors import InputError
from harness.record.flight import folder
from harness.record.flight.mesh import Mesh
from harness.record.flight.plain import Reader
from harness.record.flight.scanner import Scanner
from harness.record.flight.table import Table, read_content, table_of

SMALL = Mesh(1, 2, 6, frames=1)


class Bomb:
    """Runs a command if it is ever rebuilt."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


HOSTILE = {
    "GLOBAL": b"\x80\x02cos\nsystem\n" + _text("true") + b"\x85R.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "INST": b"(S'true'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'true'\no.",
    "EXT1": b"\x80\x02\x82\x01.",
    "PERSID": b"Pid\n.",
    "BINPERSID": b"Nq\x00Q.",
    "BUILD": b"}}b.",
    "NEWOBJ": b"))\x81.",
    "huge memo index": b"\x80\x02}r\xff\xff\xff\x7f.",
    "memo index that was never stored": b"\x80\x02j\xff\xff\xff\x7f.",
    "long of four gigabytes": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "string beyond the end": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "frame beyond the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "a million marks": b"\x80\x02" + b"(" * 1_000_000,
    "nested lists": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "nested tuples as a key": b"\x80\x02}" + b")" + b"\x85" * 300_000 + b"Ns.",
    "a list as a key": b"\x80\x02}]Ns.",
    "a decimal of a million digits": b"L" + b"9" * 1_000_000 + b"L\n.",
    "nothing": b"",
    "no end": b"\x80\x02}",
    "empty stack": b"\x80\x02.",
    "append to a number": b"\x80\x02K\x01K\x02a.",
    "append through a mark": b"\x80\x02](K\x01a.",
    "key without value": b"\x80\x02}(K\x01u.",
    "protocol 9": b"\x80\x09N.",
    "JSON nested": b"[" * 1_000_000,
    "JSON cut off": b'{"version": "2.10", "entries": [',
    "JSON with a huge number": b'{"version": ' + b"9" * 1_000_000 + b"}",
    "JSON, not UTF-8": b'{"version": "\xff\xfe"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_dumps_end_in_an_error_that_names_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(HOSTILE[name])
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(InputError, match="rank_0"):
        folder.load(tmp_path)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_runs(protocol: int, tmp_path: Path) -> None:
    content = SMALL.content(0) | {"extra": Bomb(tmp_path / "ran")}
    data = pickle.dumps(content, protocol)
    (tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(InputError, match="rank_0"):
        folder.load(tmp_path)
    assert Scanner().table(data, "x") is None
    assert not (tmp_path / "ran").exists()
    pickle.loads(data)
    assert (tmp_path / "ran").exists(), "the bomb is a dud, and the test proves nothing"


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_of_every_protocol(protocol: int) -> None:
    more = [1, -1, 255, 65536, -(2**40), 2**62, 1.5, "ä", (), (1,), (1, 2), (1, 2, 3, 4)]
    content = SMALL.content(0) | {"more": more}
    assert Reader(pickle.dumps(content, protocol), "x").read() == content


def rows(table: Table) -> list[list[Any]]:
    """A table with its strings in place of their numbers, which each reader gives as it goes."""
    found = []
    for row in table.rows.tolist():
        for column in (4, 5, 8, 9, 12, 13):
            row[column] = table.texts[row[column]] if row[column] >= 0 else None
        found.append(row)
    return found


def same(one: Table, other: Table) -> bool:
    heads = [(table.config, table.enqueued, table.version) for table in (one, other)]
    return rows(one) == rows(other) and heads[0] == heads[1]


def contents() -> Iterator[dict[str, Any]]:
    """Dumps of all sorts: many groups, odd types, missing and additional keys."""
    yield SMALL.content(0)
    yield SMALL.content(1) | {"pg_status": {"0": {"last_enqueued_collective": 7}}, "unknown": {"a": [1]}}
    rng = Random(5)
    for _ in range(40):
        content = Mesh(2, 2, 30, frames=2).content(rng.randrange(4))
        for record in content["entries"]:
            for key in rng.sample(sorted(record), 3):
                change = rng.choice(
                    ("drop", None, True, [], [[2, 3], [4]], "text", 2**62, -1, ("a", "b"), [["x"]], 1.5)
                )
                if key in ("profiling_name", "process_group"):
                    continue
                if change == "drop":
                    del record[key]
                else:
                    record[key] = change
        yield content


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_both_readers_agree(protocol: int) -> None:
    scanner = Scanner()
    for content in contents():
        data = pickle.dumps(content, protocol)
        scanned = scanner.table(data, "x")
        plain = table_of(read_content(data, "x"), "x")
        assert scanned is not None
        assert same(scanned, plain)
        assert scanner.frames(data, [0]) == [content["entries"][0].get("frames")]


@pytest.mark.slow
def test_broken_bytes() -> None:
    """Cut anywhere and with any bytes changed: an error or a table, the same one from both readers, and quickly."""
    data = pickle.dumps(SMALL.content(0), 2)
    rng, scanner = Random(3), Scanner()
    broken = [data[:end] for end in range(0, len(data), 3)]
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        broken.append(bytes(changed))
    read = 0
    for bad in broken:
        try:
            plain = table_of(read_content(bad, "x"), "x")
        except InputError:
            plain = None
        try:
            scanned = scanner.table(bad, "x")
        except InputError:
            scanned = None
        if scanned is not None:
            assert plain is not None
            assert same(scanned, plain)
            read += 1
    assert read > 100


def test_json(tmp_path: Path) -> None:
    content = SMALL.content(0)
    for record in content["entries"]:
        del record["frames"]
        record["time_discovered_started_ns"] = record["time_discovered_started_ns"] or 0
    (tmp_path / "any prefix-7.json").write_text(json.dumps(content))
    assert same(folder.load(tmp_path).tables[7], table_of(SMALL.content(0), "x"))


def test_which_file_is_which_rank(tmp_path: Path) -> None:
    for name in ("nccl_trace_rank_3", "a.b-12.pickle", "notes.txt", ".hidden_4"):
        (tmp_path / name).write_bytes(b"")
    assert sorted(folder.files(tmp_path)) == [3, 12]
    (tmp_path / "other_3").write_bytes(b"")
    with pytest.raises(InputError, match="both name rank 3"):
        folder.files(tmp_path)


def test_not_a_dump(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dumps"):
        folder.load(tmp_path)
    for content, match in (
        ([], "mapping"),
        ({"version": "1.0"}, "2.x"),
        ({"version": "2.4", "entries": [{"record_id": 1}]}, "entry 0"),
        ({"version": "2.4", "entries": 5}, "list"),
        ({"version": "2.4", "pg_config": {"0": {"ranks": "boo"}}}, "ranks"),
    ):
        (tmp_path / "rank_0").write_bytes(pickle.dumps(content))
        with pytest.raises(InputError, match=match):
            folder.load(tmp_path)
