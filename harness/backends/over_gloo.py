"""A progress model imposed on gloo: an operation reaches gloo only once the supervisor grants it.

The supervisor grants an operation on all its ranks when all its parts may start under the model. So gloo never holds
a half-met collective, a proven deadlock leaves it clean, and the world lives on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.backends.spec import BackendSpec
from harness.model.progress import Model

if TYPE_CHECKING:
    import torch.distributed as dist

    from harness.record.recorder import Recorder


class ModelOverGloo:
    """The backend called ``name``, which is its progress model's name too."""

    def __init__(self, name: str) -> None:
        self.spec = BackendSpec(name=name, transport="gloo", model=str(Model.parse(name)), granting=True)

    def available(self) -> str | None:
        """None: gloo comes with every build of torch that this package supports."""
        from harness.backends.gloo import available

        return available()

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Make the default process group of this rank."""
        from harness.backends.process import Process

        Process(self.spec, rank, world, store, recorder)
