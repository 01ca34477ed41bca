"""The one suite: every selected cell of ``matrix.yaml``, as the plugin parametrizes it."""

from __future__ import annotations

from harness.plugin import CellUnderTest


def test_cell(harness_cell: CellUnderTest) -> None:
    harness_cell.check()
