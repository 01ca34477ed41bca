"""Engines that run on CPU: which model each behaves like, by its own conduct."""

from __future__ import annotations

import pytest

from harness import backends, testing

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
