"""HCCL as a backend. Importing ``torch_npu`` gives torch the device type npu and the backend hccl; the rest is here."""

from harness.backends.accelerator import Accelerator
from harness.backends.spec import BackendSpec

HCCL = Accelerator(
    # The model it is taken to follow; `python -m harness.testing hccl` says which one it does follow.
    spec=BackendSpec(name="hccl", transport="hccl", model="independent", granting=False),
    device="npu",
    packages=("torch_npu",),
    install="`pip install torch-npu`, in the release that goes with torch, with Ascend's CANN set up",
)
