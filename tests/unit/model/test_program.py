"""Program files: what is read, what is refused and with which words, and that printing loses nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ProgramError
from harness.model.program import Call, Program

HEAD = "program: 1\nworld: 2\ngroups:\n  W: [0, 1]\n"


def bare(program: Program) -> Any:
    """The program without lines and path."""
    ranks = {
        rank: {thread: [replace(s, line=0) for s in body] for thread, body in threads.items()}
        for rank, threads in program.ranks.items()
    }
    return replace(program, ranks=ranks, path=None)


@pytest.mark.parametrize("path", sorted(Path("scenarios/public").glob("*.yaml")), ids=lambda path: path.stem)
def test_printing_a_public_program_loses_nothing(path: Path) -> None:
    program = Program.load(path)
    assert bare(Program.parse(program.dump())) == bare(program)


def test_everything_a_statement_can_hold_survives_printing() -> None:
    text = HEAD + (
        "ranks:\n"
        "  0:\n"
        "    main:\n"
        "      - broadcast W root=1 label=a:b n=3 dtype=int64 value=2.5 -> h\n"
        "      - {batch: ['send W to=1 tag=3 label=\"x,y\"', recv W from=1 value=-1], as: p2p}\n"
        "      - batch: [send W to=1]\n"
        "      - new_group N=[1, 0]\n"
        "      - destroy_group N\n"
        "      - tell 1\n"
        "      - hear 0\n"
        "      - compute ms=1.5\n"
        "      - device_sync\n"
        "      - wait p2p\n"
        "    other: []\n"
    )
    program = Program.parse(text)
    assert bare(Program.parse(program.dump())) == bare(program)
    call = program.ranks[0]["main"][0]
    assert isinstance(call, Call)
    assert call.ops[0].label == "a:b"
    assert call.values == (2.5,)


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("ranks:\n  0: [all_gathr W]", 6, ["all_gathr W", "accepted", "all_gather"]),
        ("ranks:\n  0: [all_gather X]", 6, ["'X'", "known here: W"]),
        ("ranks:\n  0: [broadcast W]", 6, ["root=", "missing"]),
        ("ranks:\n  0: [broadcast W root=2]", 6, ["'2'", "0 to 1"]),
        ("ranks:\n  0: [all_gather W n=0]", 6, ["n=0", "from 1"]),
        ("ranks:\n  0: [all_gather W dtype=f32]", 6, ["dtype=f32", "float32"]),
        ("ranks:\n  0: [all_gather W tag=1]", 6, ["tag=1", "all_gather takes label="]),
        ("ranks:\n  0: [all_gather W n=1 n=2]", 6, ["given twice"]),
        ("ranks:\n  0: [wait h]", 6, ["wait h", "none so far"]),
        ("ranks:\n  0: [all_gather W -> a b]", 6, ["one word"]),
        ("ranks:\n  0: [destroy_group W -> a]", 6, ["takes no handle"]),
        ("ranks:\n  0:\n    - batch: [all_gather W]", 7, ["batch", "send and recv"]),
        ("ranks:\n  2: []", 6, ["'2'", "0 to 1"]),
        ("ranks:\n  0: []\n  0-1: []", 7, ["rank 0", "twice"]),
        ("ranks:\n  1-0: []", 6, ["backwards"]),
        ("ranks: {}\nexpect:\n  lanes: [completes]", 7, ["lanes:K"]),
        ("ranks: {}\nexpect:\n  lane: [hangs]", 7, ["'hangs'", "deadlock"]),
        ("ranks: {}\norder: odd", 6, ["'odd'", "cyclic"]),
        ("ranks: {}\ncolour: red", 6, ["'colour'", "accepted"]),
        ("ranks: &a {}\nexpect: *a", 6, ["aliases"]),
        ("ranks: [", 6, ["not YAML"]),
        ("ranks:\n  0: [compute ms=inf]", 6, ["ms=N"]),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_is_accepted(body: str, line: int, words: list[str]) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.parse(HEAD + body + "\n", path="bad.yaml")
    message = str(caught.value)
    assert message.startswith(f"bad.yaml:{line}:"), message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "text", ["", "- 1", "program: 2\nworld: 2\nranks: {}", "program: 1\nranks: {}", "\x00", "{" * 40]
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(ProgramError):
        Program.parse(text, path="bad.yaml")


def test_nesting_and_size_are_bounded() -> None:
    with pytest.raises(ProgramError, match="nest"):
        Program.parse("ranks: " + "[" * 500)
    with pytest.raises(ProgramError, match="65536"):
        Program.parse("program: 1\nworld: 9999999\nranks: {}")


def test_a_member_is_checked_where_the_group_is_used() -> None:
    with pytest.raises(ProgramError, match="rank 0 is no member of G"):
        Program.parse("program: 1\nworld: 2\ngroups: {G: [1]}\nranks:\n  0: [barrier G]\n")


def test_the_model_starts_without_torch_or_pytest() -> None:
    code = (
        "import sys, harness.model.outcomes, harness.model.order, harness.model.explain, harness.model.program\n"
        "heavy = {'torch', 'deepspeed', 'pytest', 'pydantic', 'numpy', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
