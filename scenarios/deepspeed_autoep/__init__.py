"""The natural failure: AutoEP with ZeRO-3, Hugging Face weights to training to rollout. See README.md."""

from harness.scenario import Scenario

from .body import body

scenario = Scenario(
    name="deepspeed_autoep",
    about="a tiny random MoE model of transformers trained with AutoEP and ZeRO-3, then rolled out",
    body=body,
    # EP 2 and EP 4; AutoEP makes groups of its own, with the same ranks.
    topologies=("dp_edp", "dp_edp4"),
    arrivals=("natural", "same", "reversed", "shuffled", "split"),
    worlds=(4, 8),
    fix="zero3_group_order",
    requires=("deepspeed", "transformers"),
    preload=(
        "deepspeed.comm.torch",
        "deepspeed.module_inject.auto_ep",
        "deepspeed.runtime.zero.stage3",
        "torch._inductor.compile_fx",
        "transformers.generation.utils",
        "transformers.models.mixtral.modeling_mixtral",
        "transformers.models.qwen3_moe.modeling_qwen3_moe",
    ),
    defaults={"model": "qwen3_moe", "steps": 3, "rollout": True},
)
