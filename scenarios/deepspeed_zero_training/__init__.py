"""The fix's compatibility claims, trained: stages, one or several groups, hpZ, qwZ, offload. See README.md."""

from harness.scenario import Scenario

from .body import body
from .needs import lacks

scenario = Scenario(
    name="deepspeed_zero_training",
    about="a tiny model trained with ZeRO, whose prefetcher meets parameters in the arrival's order",
    body=body,
    topologies=("single", "mirror", "dp_edp", "dp_edp4", "halves"),
    arrivals=("same", "reversed", "shuffled", "split", "natural"),
    worlds=(2, 4, 8),
    fix="zero3_group_order",
    requires=("deepspeed",),
    preload=("deepspeed", "deepspeed.comm.torch", "deepspeed.runtime.zero.stage3", "torch._inductor.compile_fx"),
    defaults={"stage": 3, "steps": 4, "seed": 0, "offload": "none", "hpz": 1, "qwz": False, "fetch": "all_gather"},
    lacks=lacks,
)
