"""How a task travels to its ranks: functions of scripts and test modules by value, everything else by name."""

from __future__ import annotations

import io
import sys
from collections import ChainMap
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, ClassVar

import cloudpickle

from harness.errors import UsageError

_reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]


class _Pickler(cloudpickle.Pickler):
    """cloudpickle, but code keeps the name of its file: stacks are what this project is read for."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: lambda code: (_code, (*_reduce_code(code), code.co_filename))}, cloudpickle.Pickler.dispatch_table
    )


def _code(make: Callable[..., CodeType], args: tuple[Any, ...], file: str) -> CodeType:
    return make(*args).replace(co_filename=file)


def dumps(value: Any) -> bytes:
    """A pickle of ``value`` that another process of the same installation can load."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def pack(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """A pickle of the task. What ranks cannot or should not import (scripts, test modules) travels by value.

    Raises UsageError if it cannot be pickled.
    """
    known = cloudpickle.list_registry_pickle_by_value()
    modules = {module.__name__: module for value in (function, *args) if (module := _travelling(value)) is not None}
    registered = [module for name, module in modules.items() if name not in known]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        return dumps((function, args))
    except Exception as error:
        raise UsageError(f"a task must be picklable: {error}") from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _travelling(value: Any) -> ModuleType | None:
    """The value's module if that goes by value. (``__main__`` does of itself.)"""
    name = getattr(value, "__module__", None) or type(value).__module__
    module = sys.modules.get(name)
    if module is None or name in ("builtins", "__main__"):
        return None
    last = name.rpartition(".")[2]
    if last.startswith("test_") or last.endswith("_test") or last == "conftest":
        return module
    return None if _importable(name.partition(".")[0]) else module


def _importable(package: str) -> bool:
    """Whether another process with the same path could import it; that it is loaded here says nothing."""
    return any(finder.find_spec(package, None) is not None for finder in sys.meta_path)
