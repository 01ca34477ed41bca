"""The faults' table, and worlds that end with the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.world import pool

_rows: list[Any] = []


@pytest.fixture
def fault_table() -> list[Any]:
    """Where every fault's row goes."""
    return _rows


@pytest.fixture(scope="module", autouse=True)
def _close_worlds() -> Iterator[None]:
    yield
    pool.close_all()
