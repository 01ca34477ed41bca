"""`lane` over gloo: one in-order queue a rank over all its groups, as XCCL behaved in the bug this began with.

An operation starts when every earlier one of its rank, on any group, has completed. So two ranks that issue
operations of two groups in opposite orders wait for each other for ever, asynchronous or not.
"""

from __future__ import annotations

from harness.backends.over_gloo import ModelOverGloo


def load(name: str) -> ModelOverGloo:
    """The backend ``name``; raises UsageError if it is no progress model."""
    return ModelOverGloo(name)
