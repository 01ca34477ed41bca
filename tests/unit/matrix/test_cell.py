"""Cells and their tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.matrix.cell import Cell, make_cell

CELL = make_cell(
    {"dtypes": "float32+bfloat16", "rounds": 2},
    scenario="zero3",
    backend="lanes:2",
    world=4,
    topology="dp_edp",
    arrival="shuffled:7",
    variant="with_fix",
)

words = st.text(min_size=1, max_size=12)
scalars = words | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
cells = st.builds(
    make_cell,
    st.dictionaries(words, scalars, max_size=3),
    scenario=words,
    backend=words,
    world=st.integers(1, 4096),
    topology=words,
    arrival=words,
    variant=words,
)


def test_a_token_is_short_and_readable() -> None:
    assert CELL.token == "zero3/lanes:2/4/dp_edp/shuffled:7/with_fix,dtypes=float32+bfloat16,rounds=2@04d8"
    assert Cell.parse(CELL.token) == CELL


@given(cells)
def test_any_token_round_trips(cell: Cell) -> None:
    assert Cell.parse(cell.token) == cell
    assert Cell.from_json(cell.to_json()) == cell


@given(cells)
def test_a_token_needs_no_quoting_in_a_shell(cell: Cell) -> None:
    assert set(cell.token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:+%/,=@")


@given(cells, cells)
def test_distinct_cells_have_distinct_ids(one: Cell, other: Cell) -> None:
    assert (one.id == other.id) == (one == other)


def test_an_id_is_a_file_name_that_artifact_stores_take() -> None:
    assert CELL.id == "zero3-lanes~2-4-dp_edp-shuffled~7-with_fix,dtypes=float32+bfloat16,rounds=2"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (CELL.token.replace("dp_edp", "mirror"), "checksum"),
        (CELL.token[:-1], "checksum"),
        ("zero3/lane/4/dp_edp/same", "expected SCENARIO/BACKEND/WORLD/TOPOLOGY/ARRIVAL/VARIANT"),
        ("zero3/lane/many/dp_edp/same/installed", "world 'many' is not a number of ranks"),
        ("zero3/lane/0/dp_edp/same/installed", "world '0' is not a number of ranks"),
        ("zero3/lane/4/dp_edp/same/installed,rounds", "parameter 'rounds' is not KEY=VALUE"),
        ("", "expected SCENARIO"),
    ],
)
def test_a_token_that_is_none_says_why(token: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cell.parse(token)


def test_a_token_written_by_hand_needs_no_checksum() -> None:
    assert Cell.parse("zero3/lane/4/dp_edp/same/installed").world == 4
