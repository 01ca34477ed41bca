"""What is not supported raises an error that says so, and what to use instead; the world goes on."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.testing import pool

group: Any = dist.group


def receive_from_anyone() -> None:
    dist.recv(torch.empty(1))


def completion_hook() -> None:
    group.WORLD._register_on_completion_hook(print)


def split() -> None:
    group.WORLD.split_group([0, 1])


def merge() -> None:
    group.WORLD.merge_remote_group(None, 4)


def future_of_a_transfer() -> None:
    other = 1 - dist.get_rank()
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(1), other), dist.P2POp(dist.irecv, torch.ones(1), other)][:: 1 - 2 * other]
    )
    for work in works:
        work.wait()
    works[0].get_future()


@pytest.mark.parametrize(
    ("body", "instead"),
    [
        (receive_from_anyone, "name the source"),
        (completion_hook, r"get_future\(\)\.then"),
        (split, "torch.distributed.new_group"),
        (merge, "one world that holds all ranks"),
        (future_of_a_transfer, r"use wait\(\)"),
    ],
)
def test_error_says_what_to_use(body: Any, instead: str) -> None:
    run = pool.get(2, "lane").run(body)
    for outcome in run.ranks:
        assert outcome.error is not None
        assert outcome.error.type == "harness.errors.UnsupportedError"
        assert re.search(instead, outcome.error.message)
