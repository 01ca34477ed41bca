"""Frames survive any cut, and the supervisor's end never blocks."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.world.channel import Channel, FrameReader, RankEnd, frame
from harness.world.messages import Exit, Grant


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), max_size=20))
def test_frames_survive_any_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    reader, found = FrameReader(), []
    for cut in [*cuts, len(stream)]:
        found += list(reader.feed(stream[:cut]))
        stream = stream[cut:]
    assert found == payloads


def test_frames_are_those_of_multiprocessing() -> None:
    left, right = socket.socketpair()
    connection = Connection(left.detach())
    RankEnd(right).send(Grant(1, (2, 3)))
    assert connection.recv() == Grant(1, (2, 3))
    connection.close()
    right.close()


def test_a_rank_that_does_not_read_blocks_nobody() -> None:
    ours, theirs = socket.socketpair()
    channel, rank = Channel(ours), RankEnd(theirs)
    big = b"x" * (4 << 20)
    channel.send(big)
    assert channel.backlog
    received = []
    theirs.setblocking(False)
    reader = FrameReader()
    while not received:
        channel.flush()
        received += list(reader.feed(theirs.recv(1 << 16)))
    assert not channel.backlog
    assert len(received[0]) > len(big)
    rank.close()
    ours.close()


def test_messages_before_the_end_are_handed_out() -> None:
    ours, theirs = socket.socketpair()
    channel, rank = Channel(ours), RankEnd(theirs)
    rank.send(Exit())
    rank.close()
    messages = channel.receive()
    messages += channel.receive()
    assert messages == [Exit()]
    assert channel.closed
    channel.send(Exit())
    channel.close()


def test_garbage_ends_the_channel() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.sendall(frame(b"no pickle"))
    assert channel.receive() == []
    assert channel.closed
    channel.close()
    theirs.close()


def test_a_rank_hears_that_the_supervisor_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    end = RankEnd(theirs)
    with pytest.raises(EOFError):
        end.receive()
    end.close()
