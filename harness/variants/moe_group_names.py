"""DeepSpeed MoE: the optimizer's expert parameter groups in an order that is the same on every rank, or a set's.

``split_params_into_different_moe_groups_for_optimizer`` (``deepspeed/moe/utils.py``) collects the names of expert
groups in a set of strings and makes one parameter group per name in its iteration order. Strings hash differently in
each process, so with two names (layers of different ``ep_size``) ranks disagree about which parameter group is which.
Any release is had with and without the fix by ordering what the function returns.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.errors import VariantError
from harness.variants.base import Fix, Variant

MODULE = "deepspeed.moe.utils"
FUNCTION = "split_params_into_different_moe_groups_for_optimizer"


def by_name(module: Any, names: Iterable[str]) -> list[str]:
    """As with the fix: an order that depends on the names alone."""
    return sorted(names)


def by_hash(module: Any, names: Iterable[str]) -> list[str]:
    """As without the fix: a set's order. A ``set`` that a scenario put into the module stands for a hash seed."""
    return list(getattr(module, "set", builtins.set)(names))


@contextmanager
def ordered(order: Callable[[Any, Iterable[str]], list[str]]) -> Iterator[None]:
    """While entered, expert parameter groups come in ``order``; dense ones and those of one name stay in place."""
    module, original = _find()

    @functools.wraps(original)
    def split(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = original(*args, **kwargs)
        experts = [group for group in made if group.get("moe")]
        places = [place for place, group in enumerate(made) if group.get("moe")]
        names = order(module, dict.fromkeys(group["name"] for group in experts))
        experts.sort(key=lambda group: names.index(group["name"]))
        for place, group in zip(places, experts, strict=True):
            made[place] = group
        return made

    setattr(module, FUNCTION, split)
    try:
        yield
    finally:
        setattr(module, FUNCTION, original)


def _find() -> tuple[Any, Callable[..., Any]]:
    """The module and the function to wrap; VariantError naming what is missing."""
    import deepspeed

    release = f"DeepSpeed {deepspeed.__version__.strip()}"
    try:
        module = importlib.import_module(MODULE)
    except ImportError as error:
        raise VariantError(f"{release}: looked for the module {MODULE}: {error}") from error
    original = getattr(module, FUNCTION, None)
    if not callable(original):
        raise VariantError(f"{release}: looked for the function {FUNCTION} in {MODULE}; it isn't there")
    return module, original


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


FIX = Fix(
    name="moe_group_names",
    about="expert parameter groups of the optimizer are made in the order of their names",
    variants=(
        Variant("installed", "as the release is", _as_it_is),
        Variant("with_fix", "parameter groups in the order of their names", lambda: ordered(by_name)),
        Variant("without_fix", "parameter groups in the order of a set of their names", lambda: ordered(by_hash)),
    ),
)
