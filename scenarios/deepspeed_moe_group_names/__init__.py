"""DeepSpeed MoE makes the optimizer's expert groups in the order of a set of strings. See README.md."""

from harness.scenario import Scenario

from .body import body

scenario = Scenario(
    name="deepspeed_moe_group_names",
    about="native MoE with two expert parallel sizes under ZeRO-2, each rank with a string hash seed of its own",
    body=body,
    topologies=("single",),
    arrivals=("same",),
    worlds=(2, 4, 8),
    fix="moe_group_names",
    requires=("deepspeed",),
    preload=("deepspeed", "deepspeed.comm.torch", "deepspeed.moe.layer", "torch._inductor.compile_fx"),
    # One hash seed per rank, repeated over larger worlds: 1 and 2 are the first two that order the names differently.
    defaults={"seeds": "1+2", "stage": 2, "steps": 2},
)
