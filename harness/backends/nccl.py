"""`nccl`: NVIDIA's library through torch. Awaiting hardware: see docs/lab.md.

| name | communicators | a wait | taken to follow |
| --- | --- | --- | --- |
| ``nccl`` | made with the group, on the rank's device | orders streams; the host goes on | independent |
| ``nccl:lazy`` | made at the group's first operation, as torch does without ``device_id`` | the same | first_use |
| ``nccl:blocking`` | made with the group | blocks the host (``TORCH_NCCL_BLOCKING_WAIT``) | independent |

NCCL's own rule is stricter than these models: operations of several communicators must be launched in one order on
all ranks. That it often completes otherwise is a habit of the hardware's free resources, not a promise.
"""

from __future__ import annotations

from harness.backends.accelerator import Accelerator
from harness.backends.spec import BackendSpec, form_of

#: The model each form is taken to follow, and what it is.
_FORMS = {
    "": ("independent", "nccl itself, its communicators made with the group"),
    "lazy": ("first_use", "nccl itself, its communicators made at the first operation"),
    "blocking": ("independent", "nccl itself, waits that block the host"),
}


def load(name: str) -> Accelerator:
    """The backend ``name``; raises UsageError for a form there is not."""
    form = form_of(name, "nccl", _FORMS)
    model, about = _FORMS[form]
    return Accelerator(
        spec=BackendSpec(name=name, transport="nccl", model=model, granting=False, about=about),
        device="cuda",
        install="install a CUDA build of torch",
        eager=form != "lazy",
        env={"TORCH_NCCL_BLOCKING_WAIT": "1"} if form == "blocking" else {},
    )
