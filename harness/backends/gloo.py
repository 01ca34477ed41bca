"""`gloo`, the real one: it runs as it likes, and every operation is recorded as it is issued and awaited."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from harness.backends.spec import BackendSpec
from harness.errors import UsageError

if TYPE_CHECKING:
    import torch.distributed as dist

    from harness.record.recorder import Recorder


class Gloo:
    """torch's own gloo groups. Gloo starts operations at once, and a send is a rendezvous with its recv at any size."""

    spec = BackendSpec(name="gloo", transport="gloo", model="independent", granting=False)

    def available(self) -> str | None:
        """None, or why torch here has no gloo."""
        return available()

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Make the default process group of this rank."""
        from harness.backends.process import Process

        Process(self.spec, rank, world, store, recorder)


def load(name: str) -> Gloo:
    """The backend; raises UsageError for ``gloo`` with a parameter."""
    if name != "gloo":
        raise UsageError(f"backend {name!r}: gloo takes no parameter; a model over gloo goes by the model's name")
    return Gloo()


def available() -> str | None:
    """None if torch can make gloo groups here; otherwise what is lacking."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: `pip install torch`"
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return "this build of torch has no gloo: install a build with distributed support"
    return None
