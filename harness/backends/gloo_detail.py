"""`gloo-detail`: gloo inside torch's own debug wrapper, as ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` makes it.

The wrapper lets all members meet in a monitored barrier of the group before each collective, and compares what they
are about to do. So every call blocks its host until all members make one on that group: an order that gloo would have
lived with is reported, after the group's timeout, as ranks that failed to pass the barrier. The report names neither
the other group nor the order, and reads the same for a collective that never comes. Operations, shapes and dtypes that
differ are named at once. Equal calls whose data do not belong together pass unnoticed, and so does all point to point.
`docs/engines.md` shows its reports beside the proofs of this package.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from harness.backends import gloo
from harness.backends.spec import BackendSpec
from harness.errors import UsageError

if TYPE_CHECKING:
    import torch.distributed as dist

    from harness.record.recorder import Recorder

#: The wrapper reports after this time; torch's default is half an hour.
TIMEOUT = timedelta(seconds=5)


class GlooDetail:
    """torch's debug wrapper around gloo."""

    spec = BackendSpec(
        name="gloo-detail",
        transport="gloo",
        model="host_blocking",
        granting=False,
        own_limit=TIMEOUT.total_seconds(),
        about="gloo in torch's debug wrapper (DETAIL)",
    )

    def available(self) -> str | None:
        """None, or why torch here has no gloo."""
        return gloo.available()

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Make the default process group of this rank."""
        import torch
        import torch.distributed as dist
        from torch._C import _distributed_c10d as c10d

        from harness.backends.process import Process

        class Wrapped(Process):
            def _connect(self, ranks: tuple[int, ...], index: int) -> dist.ProcessGroup:
                members = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
                me = ranks.index(self.rank)
                plain = c10d.ProcessGroupGloo(members, me, len(ranks), timeout=TIMEOUT)
                helper = c10d.ProcessGroupGloo(dist.PrefixStore("helper", members), me, len(ranks), timeout=TIMEOUT)
                wrapper = c10d._ProcessGroupWrapper(plain, helper)
                wrapper._set_sequence_number_for_group()
                group = dist.ProcessGroup(members, me, len(ranks))
                group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, wrapper)
                group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
                group._set_group_name(f"harness_{'_'.join(map(str, ranks))}_{index}")
                return group

        Wrapped(self.spec, rank, world, store, recorder)


def load(name: str) -> GlooDetail:
    """The backend; raises UsageError for a parameter."""
    if name != "gloo-detail":
        raise UsageError(f"backend {name!r}: gloo-detail takes no parameter")
    return GlooDetail()
