"""ZeRO-3's other ways to gather, given parameters in a rank-dependent order; and a handle waited for twice.

See README.md.
"""

from harness.scenario import Scenario

from .body import body

scenario = Scenario(
    name="deepspeed_zero3_calls",
    about="GatheredParameters, all_gather and a stale gather handle, over parameters of several process groups",
    body=body,
    topologies=("single", "mirror", "dp_edp", "dp_edp4", "halves"),
    arrivals=("same", "reversed", "shuffled", "split", "natural"),
    worlds=(2, 4, 8),
    fix="zero3_group_order",
    requires=("deepspeed",),
    preload=("deepspeed", "deepspeed.comm.torch", "deepspeed.runtime.zero.partition_parameters"),
    defaults={"call": "gathered_parameters"},
)
