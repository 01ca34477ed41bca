"""What a matrix file may say, and what it is told where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError, UsageError
from harness.matrix.cell import Cell
from harness.matrix.plan import load_matrix, select

GOOD = """\
matrix: 1
suites:
  pr:
    about: small
    cells:
      - scenario: zero3
        backend: [gloo, lane]
        world: [2, 4]
        topology: mirror
        arrival: [same, "shuffled:1"]
        variant: installed
expectations:
  - backend: lane
    arrival: shuffled:*
    expect: [deadlock cyclic, completes]
  - expect: completes consistent
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    return path


def test_a_block_stands_for_every_combination(tmp_path: Path) -> None:
    planned = load_matrix(write(tmp_path, GOOD)).suite("pr")
    assert len(planned) == 8
    assert len({p.cell for p in planned}) == 8


def test_the_first_rule_that_holds_applies(tmp_path: Path) -> None:
    planned = load_matrix(write(tmp_path, GOOD)).suite("pr")
    several = [p for p in planned if p.expectation.outcomes == ("deadlock cyclic", "completes")]
    assert {(p.cell.backend, p.cell.arrival) for p in several} == {("lane", "shuffled:1")}
    assert several[0].expectation.line == 13
    assert several[0].expectation.met_by("deadlock", "cyclic")
    assert not several[0].expectation.met_by("deadlock", "consistent")
    assert several[0].expectation.met_by("completes", "cyclic")
    assert not several[0].expectation.met_by("timeout", "cyclic")


def test_an_order_is_part_of_what_is_expected(tmp_path: Path) -> None:
    planned = load_matrix(write(tmp_path, GOOD)).suite("pr")
    gloo = next(p for p in planned if p.cell.backend == "gloo")
    assert gloo.expectation.met_by("completes", "consistent")
    assert not gloo.expectation.met_by("completes", "cyclic")
    assert not gloo.expectation.met_by("completes", "unknown")


FAULTS = {
    "version": ("matrix: 1", "matrix: 2", 1, "matrix: '2' is not accepted; accepted: '1'"),
    "no version": ("matrix: 1\n", "", 1, "the key 'matrix' is missing"),
    "unknown key of a suite": (
        "about: small",
        "abuot: small",
        4,
        "suites.pr.abuot: the key is unknown (value 'small'); accepted: about, limit, cells",
    ),
    "unknown key of a block": (
        "backend: [gloo",
        "backends: [gloo",
        7,
        "suites.pr.cells[0].backends: the key is unknown (value ['gloo', 'lane']); accepted: scenario, backend, world",
    ),
    "missing key": ("        backend: [gloo, lane]\n", "", 6, "suites.pr.cells[0]: the key 'backend' is missing"),
    "world of letters": ("world: [2, 4]", "world: [2, four]", 8, "suites.pr.cells[0].world[1]: 'four' is not accepted"),
    "world of none": ("world: [2, 4]", "world: [2, 0]", 8, "suites.pr.cells[0].world[1]: '0' is not accepted"),
    "verdict": ("completes]", "deadlok]", 15, "expectations[0].expect[1]: 'deadlok' is not accepted; accepted: one of"),
    "order": (
        "deadlock cyclic",
        "deadlock odd",
        15,
        "'deadlock odd' is not accepted; accepted: one of completes, deadl",
    ),
    "gloo uncovered": (
        "  - expect: comp",
        "  - backend: lane\n    expect: comp",
        6,
        "no expectation covers the cell zero3/gl",
    ),
    "lane uncovered": (
        "  - expect: comp",
        "  - backend: gloo\n    expect: comp",
        6,
        "no expectation covers the cell zero3/la",
    ),
    "idle rule": (
        "    arrival: shuffled:*",
        "    variant: with_fix",
        13,
        "expectations[0]: applies to no cell of any suite",
    ),
    "key twice": ("about: small", "about: small\n    about: large", 5, "key 'about' is given twice"),
    "alias": ("about: small", "about: &a small\n    limit: *a", 5, "aliases"),
    "no YAML": ("about: small", "about: [small", 5, "is not YAML"),
    "cell twice": ('[same, "shuffled:1"]', "[same, same]", 6, "is in suite pr already"),
}


@pytest.mark.parametrize(("old", "new", "line", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_file_line_key_value_and_what_is_accepted(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_matrix(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_a_name_that_nothing_has_is_named_at_its_line(tmp_path: Path) -> None:
    def check(cell: Cell) -> tuple[str, str] | None:
        return ("topology", "no such thing; accepted: single") if cell.world == 4 else None

    with pytest.raises(InputError, match=r"matrix.yaml:9: suites.pr.cells\[0\].topology: no such thing"):
        load_matrix(write(tmp_path, GOOD), check)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.yaml: cannot be read"):
        load_matrix(tmp_path / "nowhere.yaml")


def test_an_unknown_suite_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no suite 'prr'; accepted: pr"):
        load_matrix(write(tmp_path, GOOD)).suite("prr")


def test_selecting_narrows_and_refuses_what_matches_nothing(tmp_path: Path) -> None:
    planned = load_matrix(write(tmp_path, GOOD)).suite("pr")
    chosen = select(planned, {"backend": ["lane"], "world": ["2"], "arrival": ["shuffled:*"]})
    assert [p.cell.token.split("@")[0] for p in chosen] == ["zero3/lane/2/mirror/shuffled:1/installed"]
    with pytest.raises(UsageError, match="--backend nccl: no cell of the suite has it; accepted: gloo, lane"):
        select(planned, {"backend": ["nccl"]})
