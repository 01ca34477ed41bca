"""`xccl` and `ccl`: oneCCL on Intel's XPUs, through torch. Awaiting hardware: see docs/lab.md.

| name | who drives it | a wait |
| --- | --- | --- |
| ``xccl`` | torch's own XPU build | orders streams; the host goes on |
| ``xccl:blocking`` | the same | blocks the host (``TORCH_XCCL_BLOCKING_WAIT``) |
| ``ccl`` | intel-extension-for-pytorch 2.8 with oneccl_bindings_for_pytorch | orders streams |

All are taken to follow ``lane``: synchronous calls of all groups share the current stream. XCCL makes a communicator at
a group's first operation; it has no eager form (torch-xpu-ops does not offer ``eager_connect_single_device``).
"""

from __future__ import annotations

from harness.backends.accelerator import Accelerator
from harness.backends.spec import BackendSpec
from harness.errors import UsageError


def load(name: str) -> Accelerator:
    """The backend ``name``; raises UsageError for one there is not."""
    if name not in ("xccl", "xccl:blocking", "ccl"):
        raise UsageError(f"backend {name!r}: accepted: xccl, xccl:blocking, ccl")
    transport = name.partition(":")[0]
    about = {"xccl:blocking": "xccl itself, waits that block the host", "ccl": "oneCCL through its bindings for torch"}
    spec = BackendSpec(name=name, transport=transport, model="lane", granting=False, about=about.get(name, ""))
    if transport == "ccl":
        return Accelerator(
            spec=spec,
            device="xpu",
            packages=("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"),
            install="`pip install 'collective-harness[ipex]'`, and oneccl_bind_pt 2.8 from Intel's own package index",
        )
    blocking = {"TORCH_XCCL_BLOCKING_WAIT": "1"} if name.endswith(":blocking") else {}
    return Accelerator(spec=spec, device="xpu", install="install an XPU build of torch", env=blocking)
