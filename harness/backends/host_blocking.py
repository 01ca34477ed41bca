"""`host_blocking` over gloo: the issuing call returns on completion only, handle or not.

Blocking MPI, blocking-wait switches, oneCCL on host buffers, torch's DETAIL debug wrapper.
"""

from __future__ import annotations

from harness.backends.over_gloo import ModelOverGloo


def load(name: str) -> ModelOverGloo:
    """The backend ``name``; raises UsageError if it is no progress model."""
    return ModelOverGloo(name)
