"""What a rank is told about itself when it starts, and what a fork server imports."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

#: What a fork server imports, in this order; of a name that is not installed it does without.
PRELOAD = (
    "torch",
    "torch.distributed",
    "numpy",
    "cloudpickle",
    "torch._inductor.compile_fx",
    "torch.utils.file_baton",
    "deepspeed",
    "deepspeed.comm.mori",
    "harness.world.rank",
    "harness.backends.process",
    "harness.backends.lane",
    "harness.scenario",
)

#: Set for every fork server unless the environment says otherwise: one thread each, no device, loopback only.
ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else importing inductor may start a pool of processes
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else counting devices opens them, and ranks could not be forked
    "GLOO_SOCKET_IFNAME": "lo",
}


#: Makes a rank write its Python stacks, by a handler in C that needs no lock of the interpreter.
STACK_SIGNAL = signal.SIGRTMIN + 7
#: A rank's exit status when its control channel ended before it was told to end.
LOST_CHANNEL = 71


@dataclass(frozen=True)
class ServerSpec:
    """One kind of fork server: what it imports beyond :data:`PRELOAD`, from where, and its environment."""

    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    def environment(self) -> dict[str, str]:
        """The server's whole environment."""
        return {**ENVIRONMENT, **os.environ, **dict(self.env)}


@dataclass(frozen=True)
class RankSpec:
    """What one rank is told at its start.

    ``folder`` is the world's private temporary folder, ``tag`` marks what the world leaves in shared memory.
    ``store`` is the address of the rendezvous store; rank 0 serves it.
    """

    rank: int
    size: int
    backend: str
    folder: str
    tag: str
    store: tuple[str, int]
    local_rank: int
    local_size: int
    env: dict[str, str] = field(default_factory=dict)
