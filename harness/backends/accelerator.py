"""Engines that torch itself drives on accelerators: NCCL, XCCL, and whatever else registers with torch.distributed.

Written from the documentation of torch, NCCL, torch-xpu-ops and oneCCL's bindings; what runs on a device is awaiting
hardware (docs/lab.md). Each rank takes the device of its local rank before it makes a group.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.backends.devices import devices
from harness.backends.spec import BackendSpec
from harness.errors import BackendError

if TYPE_CHECKING:
    import torch.distributed as dist

    from harness.record.recorder import Recorder


@dataclass(frozen=True)
class Accelerator:
    """A backend over torch's backend ``spec.transport`` on devices of torch's type ``device`` (cuda, xpu, npu).

    ``packages`` are imported in ranks, since they register device or backend with torch; ``install`` says where
    they are had. ``eager`` connects a group's communicator when the group is made (as ``device_id`` does in torch's
    ``init_process_group``), else its first operation does. ``env`` is set in ranks unless the environment has it.
    """

    spec: BackendSpec
    device: str
    packages: tuple[str, ...] = ()
    install: str = ""
    eager: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    def available(self) -> str | None:
        """None, or the first thing that is lacking: torch, a package, the engine in torch, a device."""
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: {self.install}"
        return self._lacking_in_torch() or self._lacking_device()

    def _lacking_in_torch(self) -> str | None:
        import torch
        import torch.distributed as dist

        asked = getattr(dist, f"is_{self.spec.transport}_available", None)
        if asked is not None and not asked():
            return f"torch {torch.__version__} is built without {self.spec.transport.upper()}: {self.install}"
        return None

    def _lacking_device(self) -> str | None:
        if self.most_ranks() > 0:
            return None
        seen = [found for found in devices() if found.kind == self.device]
        what = f"though the kernel has {seen[0]}: the driver is too old for it, or devices are hidden" if seen else ""
        return f"torch sees no {self.device} device here" + (f", {what}" if what else "")

    def most_ranks(self) -> int:
        """How many ranks this machine has a device for."""
        for package in self.packages:
            importlib.import_module(package)
        import torch

        module = getattr(torch, self.device, None)
        return int(module.device_count()) if module is not None else 0

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Take this rank's device, and make its default process group. Raises BackendError if there is none for it."""
        for name, value in self.env.items():
            os.environ.setdefault(name, value)
        for package in self.packages:
            importlib.import_module(package)
        import torch

        from harness.backends.accelerator_process import AcceleratorProcess

        index, module = int(os.environ.get("LOCAL_RANK", rank)), getattr(torch, self.device)
        if index >= module.device_count():
            raise BackendError(
                f"{self.spec.name}: rank {rank} would take {self.device}:{index}, and torch sees "
                f"{module.device_count()} such devices here: one a rank is needed"
            )
        module.set_device(index)
        AcceleratorProcess(self, torch.device(self.device, index), rank, world, store, recorder)
        facts = about(self, index)
        recorder.at_begin(lambda: recorder.note("device", facts))


def about(backend: Accelerator, index: int) -> dict[str, Any]:
    """Versions of engine and runtime, the device and its driver, and the switches set, for the evidence."""
    import torch

    module = getattr(torch, backend.device)
    found: dict[str, Any] = {"device": f"{backend.device}:{index}", "eager": backend.eager, "torch": torch.__version__}
    if hasattr(module, "get_device_name"):
        found["name"] = module.get_device_name(index)
    runtime = getattr(torch.version, backend.device, None)
    if runtime:
        found[backend.device] = runtime
    if backend.spec.transport == "nccl":
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    driver = None
    if hasattr(module, "get_device_properties"):
        driver = getattr(module.get_device_properties(index), "driver_version", None)  # XPU's have it
    known = [d.driver for d in devices() if d.kind == backend.device]
    found["driver"] = driver or (known[0] if known else "unknown")
    marks = ("NCCL_", "TORCH_NCCL_", "TORCH_XCCL_", "CCL_", "ZE_", "CUDA_VISIBLE", "HCCL_")
    found["environment"] = {name: value for name, value in os.environ.items() if name.startswith(marks)}
    return found
