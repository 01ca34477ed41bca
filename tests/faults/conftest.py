"""The faults' table, and worlds that end with the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.world import pool

from .table import Row, text

_rows: list[Row] = []


@pytest.fixture
def fault_table() -> list[Row]:
    """Where every fault's row goes."""
    return _rows


@pytest.fixture(scope="module", autouse=True)
def _close_worlds() -> Iterator[None]:
    yield
    pool.close_all()


def pytest_sessionfinish() -> None:
    path = os.environ.get("HARNESS_FAULTS_TABLE")
    if path and _rows:
        Path(path).write_text(text(_rows))
