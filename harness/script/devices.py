"""A script that asks for an accelerator which is not here runs on the CPU: its tensors, modules and meshes go there.

Only where no such device is, and once the script names an accelerator's backend or calls its device module: it would
fail otherwise. Streams and kernels are not stood in for, and ``is_available()`` says False, so that a script that looks
for a device decides for itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

#: Transports that move tensors of the CPU.
ON_HOST = ("gloo", "mpi", "oneccl")
#: Kinds of devices that scripts name.
KINDS = ("cuda", "xpu")
#: Backends that only a script for accelerators names.
_BACKENDS = ("nccl", "xccl", "ccl")
#: What calls of a device module answer where there is none.
_ANSWERS: dict[str, Any] = {
    "current_device": 0,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "set_device": None,
    "synchronize": None,
    "empty_cache": None,
    "reset_peak_memory_stats": None,
}


_mode: Any = None


def stand_in(torch: ModuleType) -> None:
    """torch was imported: be ready to lead what is asked of absent devices to the CPU."""
    global _mode
    absent = frozenset(kind for kind in KINDS if not getattr(torch, kind).is_available())
    if not absent:
        return
    for kind in absent:
        module = getattr(torch, kind)
        for name, answer in _ANSWERS.items():
            if hasattr(module, name):
                setattr(module, name, _answering(answer))
        module.is_available = lambda: False
        module.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    _mode = _make_mode(torch, absent)


def _answering(answer: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        begin()
        return answer

    return call


def begin(backend: Any = _BACKENDS[0]) -> None:
    """If this backend is one of accelerators, so is the script: from here on, absent ones are stood in for."""
    global _mode
    if _mode is not None and any(name in str(backend) for name in _BACKENDS):
        mode, _mode = _mode, None
        mode.__enter__()  # for the rest of the process


def _make_mode(torch: ModuleType, absent: frozenset[str]) -> Any:
    from torch.overrides import TorchFunctionMode

    here = torch.device("cpu")
    told = False

    def led(value: Any) -> Any:
        """``value``, or the CPU if it names an absent device."""
        nonlocal told
        kind = value.type if isinstance(value, torch.device) else str(value).partition(":")[0]
        if kind not in absent:
            return value
        if not told:
            told = True
            print(f"harness: no {kind} device here; what the script puts there is on the CPU", file=sys.stderr)  # noqa: T201
        return here

    class OnCpu(TorchFunctionMode):
        """Changes the device that a call names."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func in moves:
                led(moves[func])
                return args[0]
            if isinstance(kwargs.get("device"), torch.device | str):
                kwargs["device"] = led(kwargs["device"])
            if func is torch.Tensor.to:
                args = tuple(led(arg) if isinstance(arg, torch.device | str) else arg for arg in args)
            return func(*args, **kwargs)

    moves = {getattr(torch.Tensor, kind): kind for kind in absent if hasattr(torch.Tensor, kind)}
    return OnCpu()


def patch_data_parallel(module: ModuleType) -> None:
    """DDP on CPU modules takes no device ids, which a script for accelerators gives it."""
    original = module.DistributedDataParallel.__init__

    @wraps(original)
    def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kw: Any) -> None:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        original(self, module, device_ids, output_device, *args, **kw)

    module.DistributedDataParallel.__init__ = init


def patch_mesh(module: ModuleType) -> None:
    """A mesh over absent devices is one over the CPU."""
    import torch

    original = module.DeviceMesh.__init__

    @wraps(original)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        absent = device_type in KINDS and not getattr(torch, device_type).is_available()
        original(self, "cpu" if absent else device_type, *args, **kwargs)

    module.DeviceMesh.__init__ = init
