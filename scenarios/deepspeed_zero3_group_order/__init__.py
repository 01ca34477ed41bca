"""DeepSpeed ZeRO-3 gathers parameters of several process groups in a rank-dependent order. See README.md."""

from harness.model.topology import TOPOLOGIES
from harness.scenario import Scenario
from harness.variants.zero3_group_order import lacks

from .body import body

scenario = Scenario(
    name="deepspeed_zero3_group_order",
    about="ZeRO-3 parameters of several process groups, gathered in an order that differs between ranks",
    body=body,
    topologies=TOPOLOGIES,
    arrivals=("same", "reversed", "shuffled", "split", "natural"),
    worlds=(2, 3, 4, 8),
    fix="zero3_group_order",
    requires=("deepspeed",),
    preload=("deepspeed", "deepspeed.comm.torch", "deepspeed.runtime.zero.partition_parameters"),
    defaults={"dtypes": "float32+bfloat16+float16", "rounds": 2},
    lacks=lacks,
)
