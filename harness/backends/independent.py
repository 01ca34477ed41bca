"""`independent` over gloo: an operation starts at once. Gloo itself, NCCL as a rule, MPI's non-blocking calls."""

from __future__ import annotations

from harness.backends.over_gloo import ModelOverGloo


def load(name: str) -> ModelOverGloo:
    """The backend ``name``; raises UsageError if it is no progress model."""
    return ModelOverGloo(name)
