"""The handle of an engine's requests, with engines that are made up."""

from __future__ import annotations

import pytest

from harness.backends.buffers import Handle


class SaidOnce:
    """A request that fails, which its engine says to whoever asks first (MPI frees it then)."""

    def __init__(self) -> None:
        self.said = False

    def test(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        if not self.said:
            self.said = True
            raise RuntimeError("truncated")


@pytest.mark.parametrize("asked", [True, False])
def test_a_failure_is_told_to_whoever_waits(asked: bool) -> None:
    finished: list[int] = []
    handle = Handle([SaidOnce()], lambda: finished.append(1))
    if asked:
        assert handle.is_completed()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="truncated"):
            handle.wait()
    assert handle.is_completed()
    assert not handle.is_success()
    assert finished == [], "there is no result to write"
