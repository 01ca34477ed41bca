"""One rank's groups on an accelerator: torch's own process group of the engine is the transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from harness.backends.process import TIMEOUT, Process
from harness.errors import BackendError

if TYPE_CHECKING:
    from harness.backends.accelerator import Accelerator
    from harness.record.recorder import Recorder


class AcceleratorProcess(Process):
    """As `Process`, with groups of the engine on the rank's own device."""

    def __init__(
        self, backend: Accelerator, device: torch.device, rank: int, world: int, store: dist.Store, recorder: Recorder
    ) -> None:
        self._backend, self._at = backend, device
        self.device = device.type
        super().__init__(backend.spec, rank, world, store, recorder)

    def _connect(self, ranks: tuple[int, ...], index: int) -> dist.ProcessGroup:
        store = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
        me = ranks.index(self.rank)
        engine, kind = self._engine(store, me, ranks, f"harness_{'_'.join(map(str, ranks))}_{index}")
        if self._backend.eager:
            engine.eager_connect_single_device(self._at)
        group = dist.ProcessGroup(store, me, len(ranks))
        group._register_backend(torch.device(self.device), kind, engine)
        group._set_default_backend(kind)
        group._set_group_name(f"harness_{'_'.join(map(str, ranks))}_{index}")
        return group

    def _engine(self, store: dist.Store, me: int, ranks: tuple[int, ...], name: str) -> tuple[Any, Any]:
        """The engine's group, and torch's type for it; made as torch's own ``new_group`` makes it."""
        transport = self._backend.spec.transport
        if transport in ("nccl", "xccl"):
            cls = getattr(c10d, f"ProcessGroup{transport.upper()}")
            options = cls.Options()
            options._timeout = TIMEOUT
            options.global_ranks_in_group, options.group_name = list(ranks), name
            return cls(store, me, len(ranks), options), getattr(dist.ProcessGroup.BackendType, transport.upper())
        plugin = dist.Backend._plugins.get(transport.upper())
        if plugin is None:
            raise BackendError(f"torch knows no backend {transport!r}, although {self._backend.packages} were imported")
        if not plugin.extended_api:
            return plugin.creator_fn(store, me, len(ranks), TIMEOUT), dist.ProcessGroup.BackendType.CUSTOM
        options = c10d._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, me, len(ranks)
        options.timeout, options.group_id, options.global_ranks_in_group = TIMEOUT, name, list(ranks)
        return plugin.creator_fn(options, None), dist.ProcessGroup.BackendType.CUSTOM
