"""Worlds are kept, used again and replaced; tasks travel; ranks come back clean."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import RankFailedError, UsageError, WorldError
from harness.world import forkserver, pool
from harness.world.rank import here


@pytest.fixture(scope="module", autouse=True)
def _close() -> Iterator[None]:
    yield
    pool.close_all()


class OfThisTest(Exception):
    """An exception class that ranks can't import."""


def _pid() -> int:
    return os.getpid()


def test_a_world_is_used_again() -> None:
    first = pool.get(2, "lane").run(_pid).values
    assert pool.get(2, "lane").run(_pid).values == first
    assert set(pool.get(2, "gloo").run(_pid).values).isdisjoint(first)


def test_a_spent_world_says_why() -> None:
    world = pool.get(1, "gloo")
    world.run(os._exit, 3)
    with pytest.raises(WorldError, match="cannot serve another run: rank 0: exit 3"):
        world.run(_pid)
    assert pool.get(1, "gloo") is not world


def _spoil() -> None:
    os.environ["SPOILED"] = "1"
    os.chdir("/")
    random.random()


def _look() -> tuple[str | None, str, float, float]:
    return os.environ.get("SPOILED"), os.getcwd(), random.random(), float(torch.rand(1))


def test_tasks_find_ranks_as_they_were() -> None:
    world = pool.get(1, "lane")
    before = world.run(_look).values
    world.run(_spoil)
    assert world.run(_look).values == before


def _raise() -> None:
    raise OfThisTest("told")


def test_the_exception_itself_comes_back() -> None:
    run = pool.get(2, "lane").run(_raise)
    with pytest.raises(RankFailedError, match="OfThisTest: told") as failed:
        run.check()
    assert isinstance(failed.value.__cause__, OfThisTest)


def _lock() -> Any:
    import threading

    return threading.Lock()


def test_a_value_that_cannot_travel_is_the_ranks_failure() -> None:
    run = pool.get(1, "lane").run(_lock)
    assert not run.ok
    assert run.ranks[0].error is not None
    assert "pickle" in run.ranks[0].error.message


def test_a_task_that_cannot_travel_is_refused() -> None:
    with pytest.raises(UsageError, match="must be picklable"):
        pool.get(1, "lane").run(_lock().acquire)
    assert pool.get(1, "lane").run(_pid).ok


def _where() -> tuple[int, int, str | None, str]:
    place = here()
    assert place is not None
    return place.rank, place.local_rank, os.environ.get("LOCAL_SIZE"), os.environ["TMPDIR"]


def test_a_rank_knows_its_place_and_has_a_folder_of_its_own() -> None:
    assert here() is None
    values = pool.get(2, "lane").run(_where).values
    assert [value[:3] for value in values] == [(0, 0, "2"), (1, 1, "2")]
    assert Path(values[0][3]).stat().st_mode & 0o077 == 0


def _order_of_addresses() -> list[int]:
    found = {object() for _ in range(64)}
    ids = sorted(map(id, found))
    return [ids.index(id(item)) for item in found]


def test_ranks_do_not_share_addresses() -> None:
    one, other = pool.get(2, "lane").run(_order_of_addresses).values
    assert one != other, "what iterates by address must not come in the same order on all ranks"


def _hash() -> int:
    return hash("a group's name")


def test_hash_seeds() -> None:
    values = pool.get(2, "gloo", hash_seeds=(1, 2)).run(_hash).values
    assert values[0] != values[1]
    assert len(set(pool.get(2, "gloo").run(_hash).values)) == 1


def test_preloading_what_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_at_import.py").write_text("raise RuntimeError('broken on purpose')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WorldError, match="broken on purpose"):
        forkserver.ForkServer.shared().preload(["breaks_at_import"])
    forkserver.ForkServer.shared().preload(["not_installed_at_all"])


def test_a_forked_process_joins_the_server_of_its_parent() -> None:
    """As pytest-forked does: the child has worlds of its own, and leaves those of its parent alone."""
    parents = pool.get(2, "lane").run(_pid).values
    child = os.fork()
    if child == 0:
        status = 1
        try:
            own = pool.get(2, "lane").run(_pid).values
            status = 0 if set(own).isdisjoint(parents) else 2
            pool.close_all()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.get(2, "lane").run(_pid).values == parents
