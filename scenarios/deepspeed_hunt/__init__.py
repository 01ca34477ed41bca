"""A hunt for rank-dependent orders in real training, whatever the scenario. See README.md."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.scenario import Scenario

from .body import KINDS, body


def lacks(params: Mapping[str, Any]) -> str | None:
    """MiCS is in DeepSpeed up to 0.19.6."""
    found = importlib.util.find_spec("deepspeed") if params["kind"] == "mics" else None
    if found and found.origin and not Path(found.origin).parent.joinpath("runtime", "zero", "mics.py").is_file():
        return "this DeepSpeed has no MiCS (deepspeed.runtime.zero.mics)"
    return None


scenario = Scenario(
    name="deepspeed_hunt",
    about="real training of many kinds, where ranks differ in nothing but hash seeds and addresses",
    body=body,
    topologies=("single",),
    arrivals=("natural",),
    worlds=(4,),
    requires=("deepspeed",),
    preload=(
        "deepspeed.comm.torch",
        "deepspeed.moe.layer",
        "deepspeed.pipe",
        "deepspeed.runtime.zero.mics",
        "deepspeed.runtime.zero.stage3",
        "torch._inductor.compile_fx",
    ),
    defaults={"kind": "zero3", "steps": 3},
    lacks=lacks,
)

__all__ = ["KINDS", "scenario"]
