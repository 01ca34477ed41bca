"""`mpi`: MPICH through mpi4py, on host buffers.

| name | calls | taken to follow |
| --- | --- | --- |
| ``mpi`` | non-blocking (``MPI_Iallgather``...), waited for with the handle | independent |
| ``mpi:blocking`` | blocking (``MPI_Allgather``...): a call returns once it is done | host_blocking |
| ``mpi:queue`` | blocking, made by one thread in order of issue, over all communicators | lane |

Small sends are buffered in all of them, and a rank may be done with its part of a rooted call before others have come
(`harness.model.early`). MPI has no half precision: such sums are made in float32 and rounded once.
How ranks become the processes of an MPI job is in `harness.backends.mpi_job`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.backends import mpi_job
from harness.backends.spec import BackendSpec, form_of
from harness.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from harness.backends.buffers import Request, Splits
    from harness.record.recorder import Recorder

#: The model each form is taken to follow, and what it is.
_FORMS = {
    "": ("independent+buffered", "mpi itself, non-blocking calls"),
    "blocking": ("host_blocking+buffered", "mpi itself, blocking calls"),
    "queue": ("lane+buffered", "mpi behind one in-order queue of the harness's own"),
}
_OPS = {"SUM": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}


class MPIError(RuntimeError):
    """A call of MPI failed; the message has the call and the library's own words.

    It stands for mpi4py's exception, which cannot leave the rank: whoever loads its class becomes an MPI job.
    """


class MPI:
    """The backend in one of its forms."""

    def __init__(self, form: str = "") -> None:
        self.form = form
        name = f"mpi:{form}" if form else "mpi"
        model, about = _FORMS[form]
        self.spec = BackendSpec(name=name, transport="mpi", model=model, granting=False, about=about, early=True)

    def available(self) -> str | None:
        """None, or what is not installed."""
        return mpi_job.lacking()

    def init(self, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        """Make the default process group of this rank."""
        from harness.backends.engine import EngineProcess
        from harness.backends.inorder import InOrderQueue

        mpi = mpi_job.start_mpi(rank, world, store)
        inorder = InOrderQueue() if self.form == "queue" else None

        def connect(ranks: tuple[int, ...], index: int, rendezvous: dist.Store) -> Any:
            everyone = mpi.COMM_WORLD
            tag = zlib.crc32(f"{ranks}/{index}".encode()) % 32768  # MPI promises no larger ones
            try:
                comm = everyone.Create_group(everyone.group.Incl(list(ranks)), tag)
            except mpi.Exception as error:
                raise MPIError(f"MPI_Comm_create_group: {error}") from None
            made: Any = MPICommunicator(mpi, comm, blocking=self.form != "")
            return inorder.wrap(made) if inorder else made

        EngineProcess(self.spec, rank, world, store, recorder, connect)
        version = mpi.Get_library_version().partition("\n")[0]
        recorder.at_begin(lambda: recorder.note("mpi", version))


def load(name: str) -> MPI:
    """The backend ``name``; raises UsageError for a form there is not."""
    return MPI(form_of(name, "mpi", _FORMS))


class _Pending:
    """A request of mpi4py's, made by ``call``; ``finish`` runs once it is done."""

    def __init__(self, request: Any, call: str, failing: type[Exception], finish: Callable[[], None] | None) -> None:
        self._request, self._call, self._failing, self._finish = request, call, failing, finish

    def wait(self) -> None:
        try:
            self._request.Wait()
        except self._failing as error:
            raise MPIError(f"{self._call}: {error}") from None
        self._end()

    def test(self) -> bool:
        try:
            done: bool = self._request.Test()
        except self._failing as error:
            raise MPIError(f"{self._call}: {error}") from None
        if done:
            self._end()
        return done

    def _end(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()


class MPICommunicator:
    """One communicator (see `harness.backends.buffers.Communicator`)."""

    no_p2p = ""

    def __init__(self, mpi: Any, comm: Any, *, blocking: bool) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._mpi, self._comm, self._blocking = mpi, comm, blocking

    def all_reduce(self, data: torch.Tensor, op: str) -> Request | None:
        number, finish = _number(data, data)
        return self._call("allreduce", self._mpi.IN_PLACE, number.numpy(), self._op(op), finish=finish)

    def broadcast(self, data: torch.Tensor, root: int) -> Request | None:
        return self._call("bcast", _bytes(data), root)

    def reduce(self, data: torch.Tensor, op: str, root: int) -> Request | None:
        if self.rank != root:
            number, _ = _number(data, None)
            return self._call("reduce", number.numpy(), None, self._op(op), root)
        number, finish = _number(data, data)
        return self._call("reduce", self._mpi.IN_PLACE, number.numpy(), self._op(op), root, finish=finish)

    def all_gather(self, out: torch.Tensor, data: torch.Tensor) -> Request | None:
        own = out.data_ptr() + self.rank * data.numel() * data.element_size()
        # The usual way of torch's callers: this rank's part lies in its place already. MPI wants that said.
        sent = self._mpi.IN_PLACE if data.data_ptr() == own else _bytes(_apart(data, out))
        return self._call("allgather", sent, _bytes(out))

    def reduce_scatter(self, out: torch.Tensor, data: torch.Tensor, op: str) -> Request | None:
        sent, _ = _number(_apart(data, out), None)
        number, finish = _number(out, out)
        return self._call("reduce_scatter_block", sent.numpy(), number.numpy(), self._op(op), finish=finish)

    def all_to_all(self, out: torch.Tensor, data: torch.Tensor, splits: Splits | None) -> Request | None:
        sent, received = _bytes(_apart(data, out)), _bytes(out)
        if splits is None:
            return self._call("alltoall", sent, received)
        width = data.element_size()
        counts = [n * width for n in splits.sent], [n * width for n in splits.received]
        return self._call("alltoallv", [sent, counts[0]], [received, counts[1]])

    def gather(self, out: torch.Tensor | None, data: torch.Tensor, root: int) -> Request | None:
        return self._call("gather", _bytes(data), None if out is None else _bytes(out), root)

    def scatter(self, out: torch.Tensor, data: torch.Tensor | None, root: int) -> Request | None:
        return self._call("scatter", None if data is None else _bytes(data), _bytes(out), root)

    def barrier(self) -> Request | None:
        return self._call("barrier")

    def send(self, data: torch.Tensor, to: int, tag: int) -> Request | None:
        return self._call("send", _bytes(data), to, tag)

    def recv(self, data: torch.Tensor, source: int, tag: int) -> Request | None:
        return self._call("recv", _bytes(data), source, tag)

    def _call(self, name: str, *args: Any, finish: Callable[[], None] | None = None) -> Request | None:
        """``MPI_Name``, or ``MPI_Iname`` where calls don't block."""
        name = name.capitalize() if self._blocking else "I" + name
        call, failing = f"MPI_{name}", self._mpi.Exception
        try:
            request = getattr(self._comm, name)(*args)
        except failing as error:
            raise MPIError(f"{call}: {error}") from None
        if not self._blocking:
            return _Pending(request, call, failing, finish)
        if finish is not None:
            finish()
        return None

    def _op(self, name: str) -> Any:
        if name not in _OPS:
            raise UnsupportedError(f"MPI has no reduction {name}; accepted: {', '.join(_OPS)}")
        return getattr(self._mpi, _OPS[name])


def _apart(data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``data``, as a copy if it shares memory with ``out``, which MPI does not allow."""
    start, end = data.data_ptr(), data.data_ptr() + data.numel() * data.element_size()
    shared = start < out.data_ptr() + out.numel() * out.element_size() and out.data_ptr() < end
    return data.clone() if shared else data


def _bytes(tensor: torch.Tensor) -> Any:
    """The tensor's memory: what is only moved needs no type."""
    import torch

    return tensor.view(torch.uint8).numpy()


def _number(tensor: torch.Tensor, target: torch.Tensor | None) -> tuple[torch.Tensor, Callable[[], None] | None]:
    """The tensor in a type MPI calculates with, and what puts the result into ``target`` where that is a copy."""
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor, None
    wide = tensor.float()
    if target is None:
        return wide, None
    return wide, lambda: target.copy_(wide)
