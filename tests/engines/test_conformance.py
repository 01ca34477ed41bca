"""Engines that run on CPU: which model each behaves like, by its own conduct, and random programs on them."""

from __future__ import annotations

import pytest

from harness import backends, testing
from harness.world import pool
from tests.programs.agreement import agree

#: What each engine is found to behave like. A queue in front of an engine makes it a lane, whatever the engine.
BEHAVES_LIKE = {
    "oneccl": ("host_blocking",),
    "oneccl:lazy": ("host_blocking",),
    "oneccl:queue": ("lane",),
    "mpi": ("independent",),
    "mpi:blocking": ("host_blocking",),
    "mpi:queue": ("lane",),
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", BEHAVES_LIKE)
def test_conformance(backend: str) -> None:
    reason = backends.get(backend).available()
    if reason is not None:
        pytest.skip(reason)
    report = testing.conformance(backend)
    assert report.ok, str(report)
    assert report.behaves_like == BEHAVES_LIKE[backend], str(report)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("backend", "count"),
    [("mpi", 500), ("mpi:blocking", 500), ("mpi:queue", 500), ("oneccl", 30), ("oneccl:queue", 30)],
)
def test_random_programs_do_what_the_model_allows(backend: str, count: int) -> None:
    """Plain ones: MPI ends a non-root's reduce or a small send before the other side has come, as it may. Fewer on
    oneCCL, which is given 15 s before a hang is believed."""
    reason = backends.get(backend).available()
    if reason is not None:
        pytest.skip(reason)
    try:
        agree(backend, count, plain=True)
    finally:
        pool.close_all()
