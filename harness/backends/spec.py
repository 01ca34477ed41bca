"""What the rest of the harness needs to know of a backend, without importing what drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from harness.errors import UsageError

if TYPE_CHECKING:
    import torch.distributed as dist

    from harness.record.recorder import Recorder


class BackendSpec(NamedTuple):
    """A backend's plain description; it is written into the evidence and sent to ranks."""

    name: str
    #: who moves the bytes: gloo, nccl, xccl, oneccl, mpi
    transport: str
    #: the progress model that is imposed, or that the transport is taken to follow; see `harness.model.progress.Model`
    model: str
    #: whether operations wait for the supervisor's grant (a model over a transport) or run as they like (a real engine)
    granting: bool
    #: Seconds after which a real engine ends a hang with an error of its own; 0 if it never does.
    own_limit: float = 0.0
    #: What of the transport this is, where its name alone would mislead: a queue in front of it, a wrapper around it.
    about: str = ""
    #: Whether it may let a rank go before the others of an operation have come (`harness.model.early`).
    early: bool = False

    @property
    def patience(self) -> float:
        """Seconds that a real engine, which a proof says is stuck, gets to go on after all, or to report it."""
        return max(0.5, 2 * self.own_limit)

    @property
    def torch_name(self) -> str:
        """The name this backend has in torch.distributed (which gives colons and plus signs a meaning of its own)."""
        return "harness_" + self.name.replace(":", "_").replace("+", "_")


class Backend(Protocol):
    """A transport with its own progress, or a progress model imposed on a transport."""

    spec: BackendSpec

    def available(self) -> str | None:
        """None if ranks can use it on this machine; otherwise why not and what would change that."""

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """In a rank: make the default process group, so that torch.distributed works as in any script.

        Called once per process, before its first task. From then on, groups made in a task use this backend,
        and ``recorder`` hears of every operation.
        """


#: ``load(name)`` gives the backend; a name with a parameter (``lanes:4``) is handed over whole.
Loader = Callable[[str], Backend]


def form_of(name: str, base: str, forms: Iterable[str]) -> str:
    """What follows the colon in a backend's name, empty for the plain one; UsageError if it is none of ``forms``."""
    names = {f"{base}:{form}" if form else base: form for form in forms}
    if name not in names:
        raise UsageError(f"backend {name!r} is unknown; accepted: {', '.join(names)}")
    return names[name]
