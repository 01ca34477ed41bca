"""Gradient averaging over two kinds of groups, as mixture-of-experts training has it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist


def average(gradients: Mapping[str, torch.Tensor], groups: Mapping[str, dist.ProcessGroup], order: list[str]) -> None:
    """Average each gradient over the group of its name, in place, all at once; issued in ``order``.

    ``order`` must be the same on every rank: two ranks that disagree wait for each other wherever the groups share
    one queue.
    """
    works = [dist.all_reduce(gradients[name], group=groups[name], async_op=True) for name in order]
    for name, work in zip(order, works, strict=True):
        work.wait()
        gradients[name] /= groups[name].size()
