"""`first_use` over gloo: the first operation on a group blocks its host until every member has issued one.

So NCCL and XCCL create communicators lazily: whoever comes first waits for the others inside the call.
"""

from __future__ import annotations

from harness.backends.over_gloo import ModelOverGloo


def load(name: str) -> ModelOverGloo:
    """The backend ``name``; raises UsageError if it is no progress model."""
    return ModelOverGloo(name)
