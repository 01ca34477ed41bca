"""Captures keep the head and the tail of a stream, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.world.capture import Capture


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 16), st.integers(1, 16))
def test_head_and_tail(chunks: list[bytes], head: int, tail: int) -> None:
    whole = b"".join(chunks).replace(b"\xff", b"?")
    capture = Capture(head, tail)
    for chunk in chunks:
        capture.feed(chunk.replace(b"\xff", b"?"))
    assert capture.total == len(whole)
    assert capture.dropped == max(0, len(whole) - head - tail)
    if capture.dropped:
        assert f"{capture.dropped} bytes of output dropped" in capture.text()
        assert capture.text().startswith(whole[:head].decode(errors="replace"))
        assert capture.text().endswith(whole[-tail:].decode(errors="replace"))
    else:
        assert capture.text() == whole.decode(errors="replace")


def test_memory_is_bounded() -> None:
    capture = Capture(10, 100)
    for _ in range(10_000):
        capture.feed(b"y" * 50)
    assert sum(map(len, capture._tail)) < 200
    assert capture.last_words(1).endswith("y" * 100)


def test_last_words_are_the_last_lines_or_the_report_of_a_fatal_error() -> None:
    capture = Capture()
    capture.feed(b"one\n\ntwo\nthree\n")
    assert capture.last_words(2) == "two\nthree"
    capture.feed(b"what(): sizes differ\nFatal Python error: Aborted\n\nThread 1:\n  File listener\n")
    capture.feed(b"Current thread 2:\n  File body\n  File rank\n  File main\n")
    assert capture.last_words(6).splitlines() == [
        *("two", "three", "what(): sizes differ", "Fatal Python error: Aborted", "Current thread 2:", "  File body")
    ]
