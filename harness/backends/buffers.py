"""torch's calls on a process group, as calls on flat host buffers: what an engine in Python needs to be a transport.

An engine (oneCCL, MPI) offers a `Communicator`: collectives over contiguous one-dimensional tensors in host memory.
`BufferGroup` makes of it what `harness.backends.group` asks of a transport's group: it flattens, splits and joins
tensors, keeps them until an operation is over, and copies results to where they belong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import UnsupportedError

#: The operators an engine may know, by torch's names.
OPERATORS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


class Request(Protocol):
    """An operation under way. Whoever waits for it, waits once."""

    def wait(self) -> None:
        """Block until it is done; raises what it failed with."""

    def test(self) -> bool:
        """Whether it is done; raises what it failed with."""


class Splits(NamedTuple):
    """How many elements an all_to_all receives from and sends to each rank."""

    received: Sequence[int]
    sent: Sequence[int]


class Communicator(Protocol):
    """One communicator of one rank. Buffers are flat; ranks count within the communicator.

    A call returns None where it is done, else a request. A call that the engine lacks raises UnsupportedError.
    """

    rank: int
    size: int
    #: Why it has no point-to-point calls, if it has none.
    no_p2p: str

    def all_reduce(self, data: Tensor, op: str) -> Request | None: ...
    def broadcast(self, data: Tensor, root: int) -> Request | None: ...
    def reduce(self, data: Tensor, op: str, root: int) -> Request | None: ...
    def all_gather(self, out: Tensor, data: Tensor) -> Request | None: ...
    def reduce_scatter(self, out: Tensor, data: Tensor, op: str) -> Request | None: ...
    def all_to_all(self, out: Tensor, data: Tensor, splits: Splits | None) -> Request | None:
        """Equal parts without ``splits``; with them on one rank, there are some on all."""

    def gather(self, out: Tensor | None, data: Tensor, root: int) -> Request | None:
        """``out`` on the root only."""

    def scatter(self, out: Tensor, data: Tensor | None, root: int) -> Request | None:
        """``data`` on the root only."""

    def barrier(self) -> Request | None: ...
    def send(self, data: Tensor, to: int, tag: int) -> Request | None: ...
    def recv(self, data: Tensor, source: int, tag: int) -> Request | None: ...


class Handle(dist.Work):
    """The handle of an engine's requests. ``finish`` copies results to where they belong; ``kept`` lives as long."""

    def __init__(
        self, requests: Sequence[Request | None], finish: Callable[[], None] | None = None, kept: object = None,
        source: int = -1,
    ) -> None:  # fmt: skip
        super().__init__()
        self._requests = [request for request in requests if request is not None]
        self._finish, self._kept, self._source = finish, kept, source
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        if not self._requests:
            self._end()

    def _end(self) -> None:
        finish, self._finish, self._kept = self._finish, None, None
        if finish is not None:
            finish()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until done; an engine's wait has no time limit, so ``timeout`` is not looked at."""
        with self._lock:
            if self._error is not None:  # found by `is_completed`: the engine says it once
                raise self._error
            try:
                while self._requests:
                    self._requests[0].wait()
                    del self._requests[0]
                self._end()
            except Exception as error:
                self._error = error
                raise
        return True

    def is_completed(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # another thread waits for it
        try:
            while self._error is None and self._requests and self._requests[0].test():
                del self._requests[0]
            if not self._requests:
                self._end()
            return self._error is not None or not self._requests
        except Exception as error:  # noqa: BLE001 - a failed operation is over; `wait` raises it
            self._error = error
            return True
        finally:
            self._lock.release()

    def is_success(self) -> bool:
        return self._error is None and self.is_completed()

    def exception(self) -> BaseException | None:
        return self._error

    def _source_rank(self) -> int:
        return self._source

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the handle's end: nothing else moves the engine on, so a thread waits for it."""
        if self._future is None:
            self._future = torch.futures.Future()
            if self._requests:
                threading.Thread(target=self._resolve, name="harness-future", daemon=True).start()
            else:
                self._resolve()
        return self._future

    def _resolve(self) -> None:
        from harness.record import current

        current().own_thread()
        assert self._future is not None
        try:
            self.wait()
        except Exception as error:  # noqa: BLE001 - it goes to whoever asks the future
            self._future.set_exception(error)
        else:
            self._future.set_result(None)


class BufferGroup(dist.ProcessGroup):
    """A transport's group over an engine's communicator; see `harness.backends.group` for the calls."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm.rank, comm.size)
        self.comm = comm
        self.no_p2p = comm.no_p2p

    # --- what everyone gets -----------------------------------------------------------------------------------

    def allreduce(self, tensors: Sequence[Tensor], opts: Any) -> Handle:
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any) -> Handle:
        op = operator(opts.reduceOp)
        flats = [_flat(tensor) for tensor in tensors]
        requests = [self.comm.all_reduce(flat, op) for flat in flats]
        return Handle(requests, _writer(tensors, flats), flats)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Handle:
        (tensor,) = tensors
        flat = _flat(tensor)
        return Handle([self.comm.broadcast(flat, opts.rootRank)], _writer([tensor], [flat]), flat)

    def allgather(self, output_lists: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Handle:
        handles = [self._gathered(list(out), data) for out, data in zip(output_lists, inputs, strict=True)]
        return _joined(handles)

    allgather_coalesced = allgather

    def _gathered(self, outputs: list[Tensor], data: Tensor) -> Handle:
        if any(out.numel() != data.numel() for out in outputs):
            raise ValueError(f"all_gather of {data.numel()} elements into {[out.numel() for out in outputs]}")
        whole, flat = data.new_empty(data.numel() * self.size()), _flat(data)
        return Handle([self.comm.all_gather(whole, flat)], _splitter(whole, outputs), (whole, flat))

    def _allgather_base(self, output: Tensor, data: Tensor, opts: Any) -> Handle:
        return self.allgather_into_tensor_coalesced([output], [data], opts)

    def allgather_into_tensor_coalesced(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Handle:
        wholes, flats = [_flat(out) for out in outputs], [_flat(data) for data in inputs]
        for whole, flat in zip(wholes, flats, strict=True):
            if whole.numel() != flat.numel() * self.size():
                raise ValueError(f"all_gather of {flat.numel()} elements of {self.size()} ranks into {whole.numel()}")
        requests = [self.comm.all_gather(whole, flat) for whole, flat in zip(wholes, flats, strict=True)]
        return Handle(requests, _writer(outputs, wholes), (wholes, flats))

    def barrier(self, opts: Any) -> Handle:
        return Handle([self.comm.barrier()])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A plain barrier: the engine can't say who lacks, the record does."""
        self.barrier(None).wait()

    # --- what is scattered or exchanged -----------------------------------------------------------------------

    def reduce_scatter(self, outputs: Sequence[Tensor], input_lists: Sequence[Sequence[Tensor]], opts: Any) -> Handle:
        wholes = [torch.cat([t.reshape(-1) for t in row]) for row in input_lists]
        return self.reduce_scatter_tensor_coalesced(outputs, wholes, opts)

    def _reduce_scatter_base(self, output: Tensor, data: Tensor, opts: Any) -> Handle:
        return self.reduce_scatter_tensor_coalesced([output], [data], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Handle:
        op = operator(opts.reduceOp)
        parts, wholes = [_flat(out) for out in outputs], [_flat(data) for data in inputs]
        for part, whole in zip(parts, wholes, strict=True):
            if whole.numel() != part.numel() * self.size():
                raise ValueError(f"reduce_scatter of {whole.numel()} elements into {self.size()} x {part.numel()}")
        requests = [self.comm.reduce_scatter(part, whole, op) for part, whole in zip(parts, wholes, strict=True)]
        return Handle(requests, _writer(outputs, parts), (parts, wholes))

    def alltoall_base(
        self, output: Tensor, data: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any
    ) -> Handle:
        out, flat = _flat(output), _flat(data)
        if output_splits or input_splits:
            splits = Splits(self._counts(output, output_splits), self._counts(data, input_splits))
        else:
            splits = None
            self._counts(output, ()), self._counts(data, ())
        return Handle([self.comm.all_to_all(out, flat, splits)], _writer([output], [out]), (out, flat))

    def _counts(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """Elements per rank; ``splits`` are rows. Raises ValueError where equal parts don't come out."""
        if not splits:
            if tensor.numel() % self.size():
                raise ValueError(f"all_to_all of {tensor.numel()} elements among {self.size()} ranks")
            return [tensor.numel() // self.size()] * self.size()
        row = tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0
        return [rows * row for rows in splits]

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Handle:
        flat = torch.cat([t.reshape(-1) for t in inputs])
        splits = Splits([t.numel() for t in outputs], [t.numel() for t in inputs])
        whole = flat.new_empty(sum(splits.received))
        return Handle([self.comm.all_to_all(whole, flat, splits)], _splitter(whole, outputs), (whole, flat))

    # --- what one rank gets or gives --------------------------------------------------------------------------

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Handle:
        (tensor,) = tensors
        flat = _flat(tensor)
        request = self.comm.reduce(flat, operator(opts.reduceOp), opts.rootRank)
        return Handle([request], _writer([tensor], [flat]), flat)

    def gather(self, output_lists: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Handle:
        (data,) = inputs
        flat = _flat(data)
        if self.rank() != opts.rootRank:
            return Handle([self.comm.gather(None, flat, opts.rootRank)], None, flat)
        whole = flat.new_empty(flat.numel() * self.size())
        request = self.comm.gather(whole, flat, opts.rootRank)
        return Handle([request], _splitter(whole, output_lists[0]), (whole, flat))

    def scatter(self, outputs: Sequence[Tensor], input_lists: Sequence[Sequence[Tensor]], opts: Any) -> Handle:
        (output,) = outputs
        flat = _flat(output)
        root = self.rank() == opts.rootRank
        whole = torch.cat([t.reshape(-1) for t in input_lists[0]]) if root else None
        return Handle([self.comm.scatter(flat, whole, opts.rootRank)], _writer([output], [flat]), (flat, whole))

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int) -> Handle:
        flats = [_flat(tensor) for tensor in tensors]
        return Handle([self.comm.send(flat, dst, tag) for flat in flats], None, flats)

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int) -> Handle:
        flats = [_flat(tensor) for tensor in tensors]
        requests = [self.comm.recv(flat, src, tag) for flat in flats]
        return Handle(requests, _writer(tensors, flats), flats, source=src)

    # --- what torch asks of a group ---------------------------------------------------------------------------

    def _get_backend(self, device: torch.device) -> BufferGroup:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        """Nothing to set: an engine's wait has no limit; the world has one."""

    _set_default_timeout = set_timeout


def operator(op: Any) -> str:
    """torch's name of a reduction. Raises UnsupportedError for one that takes a factor of its own."""
    for name in OPERATORS:
        if op == getattr(dist.ReduceOp, name):
            return name
    raise UnsupportedError(f"reduction {op} is not offered here; accepted: {', '.join(OPERATORS)}")


def _flat(tensor: Tensor) -> Tensor:
    """The tensor's elements in a row: the same memory if they lie so, else a copy."""
    return tensor.detach().reshape(-1)


def _writer(tensors: Sequence[Tensor], flats: Sequence[Tensor]) -> Callable[[], None] | None:
    """A call that writes results back into those tensors whose flat form was a copy."""
    copies = [(t, f) for t, f in zip(tensors, flats, strict=True) if t.numel() and t.data_ptr() != f.data_ptr()]
    if not copies:
        return None

    def write() -> None:
        with torch.no_grad():
            for tensor, flat in copies:
                tensor.copy_(flat.view(tensor.shape))

    return write


def _splitter(whole: Tensor, outputs: Sequence[Tensor]) -> Callable[[], None]:
    """A call that hands out one flat result to several tensors."""

    def split() -> None:
        with torch.no_grad():
            for output, part in zip(outputs, whole.split([t.numel() for t in outputs]), strict=True):
                output.copy_(part.view(output.shape))

    return split


def _joined(handles: Sequence[Handle]) -> Handle:
    """One handle for several."""
    if len(handles) == 1:
        return handles[0]
    return Handle([_Part(handle) for handle in handles])


class _Part:
    """A handle as a request of another."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def wait(self) -> None:
        self._handle.wait()

    def test(self) -> bool:
        return self._handle.is_completed()
