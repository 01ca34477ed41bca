"""Forms in which gloo moves tensors that it does not take as they are.

Only under a model: the real engine's own refusals are its behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

#: What gloo moves itself; every other dtype goes as bytes.
_MOVED = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bool,
    }
)


def movable(tensors: Sequence[torch.Tensor], pure: bool) -> list[torch.Tensor]:
    """``tensors``, those of dtypes unknown to gloo as views of their bytes (unless ``pure``, the real engine)."""
    if pure or all(t.dtype in _MOVED for t in tensors):
        return list(tensors)
    return [t if t.dtype in _MOVED else t.view(-1).view(torch.uint8) for t in tensors]


def rows(tensors: Sequence[torch.Tensor], pure: bool) -> list[torch.Tensor]:
    """As `movable`, with the first dimension kept, along which all-to-all splits."""
    if pure or all(t.dtype in _MOVED for t in tensors):
        return list(tensors)
    return [t.view(t.shape[0], -1).view(torch.uint8) if t.numel() else t.view(torch.uint8) for t in tensors]


def uneven_all_to_all(
    group: dist.ProcessGroup, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any
) -> dist.Work:
    """all_to_all of tensors that differ in size, which gloo does only along the first dimension of one tensor."""
    sent = [t.reshape(-1) for t in movable(inputs, False)]
    targets = movable(outputs, False)
    received = torch.empty(sum(t.numel() for t in targets), dtype=targets[0].dtype)
    sizes = [t.numel() for t in targets]
    work = group.alltoall_base(received, torch.cat(sent), sizes, [t.numel() for t in sent], opts)
    return Unpacked(work, received, targets)


class Unpacked(dist.Work):
    """A transport's handle whose one flat output is handed out to several tensors once it is there."""

    def __init__(self, work: dist.Work, flat: torch.Tensor, targets: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._work, self._flat, self._targets = work, flat, targets
        # In the transport's thread, so that the outputs fill even if nobody waits.
        self._future = work.get_future().then(self._unpack)

    def _unpack(self, future: torch.futures.Future[Any]) -> Sequence[torch.Tensor]:
        future.value()
        parts = self._flat.split([t.numel() for t in self._targets])
        for target, part in zip(self._targets, parts, strict=True):
            target.copy_(part.view(target.shape))
        return self._targets

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def exception(self) -> BaseException | None:
        found: BaseException | None = self._work.exception()
        return found

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future
