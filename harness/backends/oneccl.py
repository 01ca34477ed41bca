"""`oneccl`: Intel's own collective library on host buffers, the engine beneath XCCL.

| name | communicators | calls | taken to follow |
| --- | --- | --- | --- |
| ``oneccl`` | made with the group | return once done (all that the library offers here) | host_blocking |
| ``oneccl:lazy`` | made at the group's first call | the same | host_blocking |
| ``oneccl:queue`` | made with the group | one thread makes them in order of issue, over all groups | lane |

What the library lacks on host buffers is made of what it has: a barrier is an all_reduce of one byte, a gather an
all_gather that only the root keeps, a scatter a broadcast of which each keeps its part, an uneven all_to_all one
filled up to the largest part. There is no point to point: on host buffers ``onecclSend`` ends the process, and
``onecclGroupStart`` asks for a SYCL device (2022.1.2). A rank may be done with a reduce before its root has come
(`harness.model.early`).
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from harness.backends import oneccl_library
from harness.backends.spec import BackendSpec, form_of
from harness.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from harness.backends.buffers import Splits
    from harness.record.recorder import Recorder

#: The model each form is taken to follow, and what it is.
_FORMS = {
    "": ("host_blocking", ""),
    "lazy": ("host_blocking", "oneccl itself, its communicators made at the first call"),
    "queue": ("lane", "oneccl behind one in-order queue of the harness's own"),
}


class OneCCL:
    """The backend in one of its forms."""

    def __init__(self, form: str = "") -> None:
        self.form = form
        name = f"oneccl:{form}" if form else "oneccl"
        model, about = _FORMS[form]
        self.spec = BackendSpec(name=name, transport="oneccl", model=model, granting=False, about=about, early=True)

    def available(self) -> str | None:
        """None if the library is here; whether it starts shows in the first rank."""
        if oneccl_library.find() is None:
            return "oneCCL (libccl.so.2) is not installed: `pip install 'collective-harness[oneccl]'`"
        return None

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Make the default process group of this rank."""
        from harness.backends.engine import EngineProcess
        from harness.backends.inorder import InOrderQueue

        inorder = InOrderQueue() if self.form == "queue" else None

        def connect(ranks: tuple[int, ...], index: int, rendezvous: dist.Store) -> Any:
            comm: Any = OneCCLCommunicator(rendezvous, ranks.index(rank), len(ranks))
            if self.form != "lazy":
                comm.join()
            return inorder.wrap(comm) if inorder else comm

        EngineProcess(self.spec, rank, world, store, recorder, connect)
        version = oneccl_library.library().version()
        recorder.at_begin(lambda: recorder.note("oneccl", version))


def load(name: str) -> OneCCL:
    """The backend ``name``; raises UsageError for a form there is not."""
    return OneCCL(form_of(name, "oneccl", _FORMS))


class OneCCLCommunicator:
    """One communicator (see `harness.backends.buffers.Communicator`); every call blocks its host until it is done."""

    no_p2p = "oneCCL has no point-to-point calls on host buffers: use a broadcast over two ranks"

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._library = oneccl_library.library()
        self._comm: c_void_p | None = None

    def join(self) -> c_void_p:
        """Make the communicator if there is none yet; returns once all members have joined."""
        if self._comm is None:
            if self.rank == 0:
                self._store.set("oneccl", self._library.unique_id())
            self._comm = self._library.communicator(self.size, self._store.get("oneccl"), self.rank)
        return self._comm

    def all_reduce(self, data: torch.Tensor, op: str) -> None:
        self._call("onecclAllReduce", _at(data), _at(data), data.numel(), _dtype(data), _op(op))

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        self._call("onecclBroadcast", _at(data), _at(data), data.numel(), _dtype(data), root)

    def reduce(self, data: torch.Tensor, op: str, root: int) -> None:
        out = data.clone()
        self._call("onecclReduce", _at(data), _at(out), data.numel(), _dtype(data), _op(op), root)
        if self.rank == root:
            data.copy_(out)

    def all_gather(self, out: torch.Tensor, data: torch.Tensor) -> None:
        self._call("onecclAllGather", _at(data), _at(out), data.numel(), _dtype(data))

    def reduce_scatter(self, out: torch.Tensor, data: torch.Tensor, op: str) -> None:
        self._call("onecclReduceScatter", _at(data), _at(out), out.numel(), _dtype(data), _op(op))

    def all_to_all(self, out: torch.Tensor, data: torch.Tensor, splits: Splits | None) -> None:
        import torch

        if splits is None:
            self._call("onecclAllToAll", _at(data), _at(out), data.numel() // self.size, _dtype(data))
            return
        largest = torch.tensor([max(*splits.sent, *splits.received)])
        self.all_reduce(largest, "MAX")
        n = int(largest)
        filled, got = data.new_zeros(self.size, n), data.new_empty(self.size, n)
        for row, part in zip(filled, data.split(list(splits.sent)), strict=True):
            row[: part.numel()] = part
        self._call("onecclAllToAll", _at(filled), _at(got), n, _dtype(data))
        for row, part in zip(got, out.split(list(splits.received)), strict=True):
            part.copy_(row[: part.numel()])

    def gather(self, out: torch.Tensor | None, data: torch.Tensor, root: int) -> None:
        self.all_gather(data.new_empty(data.numel() * self.size) if out is None else out, data)

    def scatter(self, out: torch.Tensor, data: torch.Tensor | None, root: int) -> None:
        whole = out.new_empty(out.numel() * self.size) if data is None else data
        self.broadcast(whole, root)
        out.copy_(whole.split(out.numel())[self.rank])

    def barrier(self) -> None:
        import torch

        self.all_reduce(torch.zeros(1, dtype=torch.uint8), "MAX")

    def send(self, data: torch.Tensor, to: int, tag: int) -> None:
        raise UnsupportedError(self.no_p2p)

    recv = send

    def _call(self, name: str, *args: Any) -> None:
        """A call whose last arguments are the communicator and no stream (host buffers)."""
        comm = self.join()
        self._library.call(name, *args, comm, None, comm=comm)


def _at(tensor: torch.Tensor) -> int:
    address: int = tensor.data_ptr()
    return address


def _dtype(tensor: torch.Tensor) -> int:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in oneccl_library.DTYPES:
        raise UnsupportedError(f"oneCCL moves no {name}; accepted: {', '.join(oneccl_library.DTYPES)}")
    return oneccl_library.DTYPES[name]


def _op(name: str) -> int:
    if name not in oneccl_library.OPS:
        raise UnsupportedError(f"oneCCL has no reduction {name}; accepted: {', '.join(oneccl_library.OPS)}")
    return oneccl_library.OPS[name]
