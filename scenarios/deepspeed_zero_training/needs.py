"""What some rows of the table need beyond packages, and how to get it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BUILD = 'python -c "from deepspeed.ops.op_builder.cpu import AsyncIOBuilder; AsyncIOBuilder().load()"'


def lacks(params: Mapping[str, Any]) -> str | None:
    """The op that DeepSpeed would need and can't have here, or None."""
    if params["qwz"] and os.environ.get("DS_ACCELERATOR", "cpu") == "cpu":
        return "ZeRO++ qwZ needs DeepSpeed's quantizer op (QuantizerBuilder), which the CPU accelerator doesn't have"
    if params["offload"] == "nvme" and not _async_io_is_built():
        # Ranks would compile it for minutes, each waiting for the others' lock file, so it must be there before.
        return f"offload to NVMe needs DeepSpeed's async_io op; with libaio-dev and a compiler, build it once: {_BUILD}"
    return None


def _async_io_is_built() -> bool:
    """Compiled with DeepSpeed, or earlier into the folder of torch's extensions."""
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    if any(Path(folder).glob("**/async_io/async_io.so")):
        return True
    found = importlib.util.find_spec("deepspeed")
    places = [Path(place) / "ops" / "aio" for place in (found.submodule_search_locations or ())] if found else []
    return any(True for place in places for _ in place.glob("async_io_op*.so"))
