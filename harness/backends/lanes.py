"""`lanes:K` over gloo: at most K operations of a rank at once, as bounded hardware queues and channels have it."""

from __future__ import annotations

from harness.backends.over_gloo import ModelOverGloo


def load(name: str) -> ModelOverGloo:
    """The backend ``name``; raises UsageError if it is no progress model."""
    return ModelOverGloo(name)
