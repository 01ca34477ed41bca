"""What a variant is, and the registry of fixes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from harness.errors import UsageError

#: The variants that every fix has.
VARIANTS = ("installed", "with_fix", "without_fix")


@dataclass(frozen=True)
class Variant:
    """One way to run the code under test. ``apply()`` is entered in the rank, before the scenario's body."""

    name: str
    about: str
    apply: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fix:
    """A repair and its three variants."""

    name: str
    about: str
    variants: tuple[Variant, ...]

    def variant(self, name: str) -> Variant:
        """The variant of that name; UsageError names those there are."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        known = ", ".join(v.name for v in self.variants)
        raise UsageError(f"fix {self.name}: variant {name!r} is unknown; accepted: {known}")


# Modules that define a fix; imported when first asked for, since they stay importable without DeepSpeed.
_MODULES = {
    "zero3_group_order": "harness.variants.zero3_group_order",
    "moe_group_names": "harness.variants.moe_group_names",
}
_FIXES: dict[str, Fix] = {}


def register(fix: Fix) -> None:
    """Add a fix (a lab's own, from its conftest); one of the same name is replaced."""
    _FIXES[fix.name] = fix


def fix(name: str) -> Fix:
    """The fix of that name; UsageError names those there are."""
    if name not in _FIXES:
        if name not in _MODULES:
            known = ", ".join(sorted({*_MODULES, *_FIXES}))
            raise UsageError(f"fix {name!r} is unknown; accepted: {known}")
        register(importlib.import_module(_MODULES[name]).FIX)
    return _FIXES[name]
