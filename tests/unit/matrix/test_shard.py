"""Shards are a partition, and balanced where times are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError, UsageError
from harness.matrix.cell import make_cell
from harness.matrix.plan import Expectation, Planned
from harness.matrix.shard import Shard, read_times, shard_of


def suite(size: int) -> list[Planned]:
    fields = {"scenario": "s", "backend": "lane", "topology": "mirror", "arrival": "same", "variant": "installed"}
    return [Planned(make_cell({}, world=n + 1, **fields), Expectation(("completes",))) for n in range(size)]


@given(st.integers(1, 30), st.integers(1, 9), st.dictionaries(st.integers(1, 30), st.floats(0, 100)))
def test_every_cell_is_in_exactly_one_shard(size: int, count: int, times: dict[int, float]) -> None:
    planned = suite(size)
    seconds = {p.cell.id: times[p.cell.world] for p in planned if p.cell.world in times}
    parts = [shard_of(planned, Shard(index, count), seconds) for index in range(1, count + 1)]
    assert sorted(p.cell.world for part in parts for p in part) == list(range(1, size + 1))


def test_recorded_times_balance_the_shards() -> None:
    planned = suite(6)
    seconds = dict(zip([p.cell.id for p in planned], [50, 10, 10, 10, 10, 10], strict=True))
    loads = [sum(seconds[p.cell.id] for p in shard_of(planned, Shard(i, 2), seconds)) for i in (1, 2)]
    assert sorted(loads) == [50, 50]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="accepted: I/N"):
        Shard.parse(text)


def test_times_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"times.json: is not a JSON object"):
        read_times(tmp_path / "times.json")
    assert read_times(tmp_path / "none.json") == {}
