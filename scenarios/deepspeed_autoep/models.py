"""Tiny random models, built from a configuration, and how AutoEP's weights map back onto theirs."""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError

VOCABULARY = 64
EXPERTS = 4


def build(name: str) -> Any:
    """The model in float32, the same on every rank; UsageError for a name that is none."""
    import torch
    import transformers

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    if name == "qwen3_moe":
        qwen = transformers.Qwen3MoeConfig(**sizes, moe_intermediate_size=16, num_experts=EXPERTS)
        return transformers.Qwen3MoeForCausalLM(qwen)
    if name == "mixtral":
        return transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, num_local_experts=EXPERTS))
    raise UsageError(f"parameter model: {name!r} is unknown; accepted: qwen3_moe, mixtral")


def exported(engine: Any) -> dict[str, Any]:
    """All weights of the trained model under the names and in the shapes of the model it was made from.

    Gathers every parameter over its partition group, and experts over the expert parallel group as well. Collective
    over the world.
    """
    import deepspeed
    import torch
    import torch.distributed as dist
    from deepspeed.utils import groups

    whole: dict[str, Any] = {}
    for name, param in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([param]):
            tensor = param.detach().clone()
        if getattr(param, "ds_zero_placement_family", None) == "autoep_expert":
            group = groups._get_expert_parallel_group(param.group_name)
            parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
            dist.all_gather(parts, tensor, group=group)
            tensor = torch.cat(parts)
        whole[name] = tensor.cpu()
    weights = {}
    for name, tensor in whole.items():
        stem, _, last = name.rpartition(".")
        if last == "w1" and stem.endswith("experts"):
            weights[f"{stem}.gate_up_proj"] = torch.cat([tensor, whole[f"{stem}.w3"]], dim=1)
        elif last == "w2" and stem.endswith("experts"):
            weights[f"{stem}.down_proj"] = tensor
        elif last != "w3":
            weights[name.replace(".router.gate.", ".gate.")] = tensor
    return weights
