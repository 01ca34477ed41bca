"""What every rank runs: train a tiny model with two MoE layers of different expert parallel size, compare norms."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from harness.errors import UsageError, WrongValuesError
from harness.record import label
from harness.scenario import Context

HIDDEN = 8
TOKENS = 8
EXPERT_PARALLEL = (1, 2)


def body(context: Context) -> dict[str, Any]:
    """Train; every rank must have computed the same gradient norm at each step, since it is global.

    Returns the norms and the order of the optimizer's parameter groups. Raises WrongValuesError where norms differ.
    """
    import torch.distributed as dist

    seeds = _seeds(context.params["seeds"])
    with hash_seed(seeds[context.rank % len(seeds)]) if seeds else nullcontext():
        norms, order = _train(context.rank, context.params["stage"], context.params["steps"])
    gathered: list[Any] = [None] * context.world
    dist.all_gather_object(gathered, norms)
    if any(other != gathered[0] for other in gathered):
        raise WrongValuesError(
            "the global gradient norm of a step differs between ranks: "
            + "; ".join(f"rank {rank} {other}" for rank, other in enumerate(gathered))
        )
    return {"norms": norms, "order": order}


def _train(rank: int, stage: int, steps: int) -> tuple[list[float], list[str]]:
    """The norm after each step, and the names of the optimizer's parameter groups."""
    import deepspeed
    import torch

    from scenarios import deepspeed_runtime

    deepspeed_runtime.connect()
    torch.manual_seed(0)
    model = _model()
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": TOKENS,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "gradient_clipping": 1.0,
        },
    )
    _label_norms(engine.optimizer)
    norms = []
    for step in range(steps):
        data = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(1000 * step + rank))
        engine.backward(engine(data.to(engine.device)))
        engine.step()
        norms.append(float(engine.get_global_grad_norm()))
    order = [group["name"] for group in engine.optimizer.optimizer.param_groups]
    engine.destroy()
    return norms, order


def _model() -> Any:
    """A dense layer and one MoE layer per expert parallel size; the loss is a mean of squares."""
    import torch
    from deepspeed.moe.layer import MoE

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(HIDDEN, HIDDEN)
            self.moe = torch.nn.ModuleList(
                MoE(HIDDEN, torch.nn.Linear(HIDDEN, HIDDEN), num_experts=4, ep_size=size, use_rts=False)
                for size in EXPERT_PARALLEL
            )

        def forward(self, x: Any) -> Any:
            x = self.dense(x)
            for layer in self.moe:
                x = x + layer(x)[0]
            return x.pow(2).mean()

    return Model()


def _label_norms(optimizer: Any) -> None:
    """Label the all-reduce of each parameter group's norm with the group's name, so that mixed groups show."""
    original = optimizer.get_grad_norm_direct

    def get_grad_norm_direct(gradients: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(params[0], "group_name", "dense") if len(params) else "empty"
        with label(f"gradient norm of {name}"):
            return original(gradients, params, *args, **kwargs)

    optimizer.get_grad_norm_direct = get_grad_norm_direct


@contextmanager
def hash_seed(seed: int) -> Iterator[None]:
    """While entered, sets that DeepSpeed's MoE code makes iterate as in a process started with PYTHONHASHSEED=seed.

    Ranks that are forked share one seed; ranks that a launcher starts have one each, at random.
    """
    import deepspeed.moe.utils as module

    class SeededSet(builtins.set):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return iter(iteration_order(sorted(super().__iter__()), seed))

    module.set = SeededSet
    try:
        yield
    finally:
        del module.set


def iteration_order(names: Sequence[str], seed: int) -> list[str]:
    """The order in which a fresh process with that hash seed iterates a set of the names."""
    code = "import sys; print('\\n'.join(set(sys.argv[1:])))"
    command = [sys.executable, "-S", "-c", code, *names]
    done = subprocess.run(command, env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def _seeds(text: str) -> list[int]:
    """Hash seeds to stand for; none where each process goes by its own."""
    if text == "own":
        return []
    words = str(text).split("+")
    if not all(word.isdigit() and int(word) < 2**32 for word in words):
        raise UsageError(f"parameter seeds: {text!r} is not understood; accepted: own, or numbers joined by +: 1+2")
    return [int(word) for word in words]
