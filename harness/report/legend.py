"""What the backends of a table are: a model imposed on a transport is never called the real engine."""

from __future__ import annotations

from collections.abc import Iterable

from harness import backends


def legend(names: Iterable[str]) -> list[str]:
    """A line per backend, in the order given, each once."""
    lines = []
    for name in dict.fromkeys(names):
        spec = backends.get(name).spec
        if spec.granting:
            lines.append(
                f"{name}: the progress model {spec.model}, imposed on {spec.transport}; no real engine's result"
            )
        else:
            engine = spec.about or f"{spec.transport} itself"
            lines.append(f"{name}: {engine}, watched; order judged beside it")
    return lines
