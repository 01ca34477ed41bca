"""A small matrix in a folder of its own, and a test module that runs its cells."""

from __future__ import annotations

import pytest

MATRIX = """\
matrix: 1
suites:
  pr:
    about: the smallest case that tells backends and variants apart
    cells:
      - scenario: deepspeed_zero3_group_order
        backend: [gloo, lane]
        world: 2
        topology: mirror
        arrival: reversed
        variant: [without_fix, with_fix]
        params: {dtypes: float32, rounds: 1}
expectations:
  - variant: with_fix
    expect: completes consistent
  - backend: gloo
    expect: completes cyclic
  - backend: lane
    expect: deadlock cyclic
    because: both ranks wait for each other
"""
CELLS = """\
def test_cell(harness_cell):
    harness_cell.check()
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A rootdir with MATRIX and CELLS."""
    pytester.makefile(".yaml", matrix=MATRIX)
    pytester.makepyfile(test_cells=CELLS)
    return pytester
