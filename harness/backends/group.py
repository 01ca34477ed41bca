"""Every call that torch.distributed makes on a process group, recorded before the transport sees it.

The names of torch 2.13 (``all_gather_single``...) and the older ones; options by position or by keyword, or in their
place the plain values that torch's own overloads take. Tensors are held until the operation is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from harness.backends import wire
from harness.backends.issuing import Issuer, Tensors
from harness.backends.work import finished
from harness.errors import UnsupportedError


class RecordedGroup(Issuer):
    """One process group of one rank; see `harness.backends.issuing` for how its calls go."""

    # --- collectives ----------------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> dist.Work:
        tensors = _list(tensors)
        opts = _options(c10d.AllreduceOptions, opts, timeout, reduceOp=op)
        return self._collective(
            "all_reduce", tensors, opts, lambda: self.inner.allreduce(tensors, opts), result=tensors
        )

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        opts = _options(c10d.AllreduceCoalescedOptions, opts)
        tensors = list(tensors)

        def start() -> Any:
            return self.inner.allreduce_coalesced(tensors, opts)

        return self._collective("all_reduce", tensors, opts, start, result=tensors)

    def broadcast(
        self, tensors: Any, opts: Any = None, root: int | None = None, timeout: timedelta | None = None
    ) -> dist.Work:
        tensors = _list(tensors)
        opts = _options(c10d.BroadcastOptions, opts, timeout, rootRank=root)
        sent = wire.movable(tensors, self.process.pure)
        return self._collective(
            "broadcast", tensors, opts, lambda: self.inner.broadcast(sent, opts), root=opts.rootRank, result=tensors
        )

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, root: int | None = None, timeout: timedelta | None = None
    ) -> dist.Work:
        tensors = _list(tensors)
        if isinstance(opts, int):
            opts, root = None, opts
        opts = _options(c10d.ReduceOptions, opts, timeout, rootRank=root, reduceOp=op)
        # Gloo leaves partial sums on the other ranks; a model keeps their tensors as they were.
        spared = not self.process.pure and self.rank() != opts.rootRank
        used = [t.clone() for t in tensors] if spared else tensors
        return self._collective(
            "reduce", tensors, opts, lambda: self.inner.reduce(used, opts), root=opts.rootRank, result=tensors
        )

    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> dist.Work:
        inputs = _list(input_tensors)
        outputs = _lists(output_tensors)
        opts = _options(c10d.AllgatherOptions, opts, timeout)
        sent, into = wire.movable(inputs, self.process.pure), [wire.movable(o, self.process.pure) for o in outputs]
        return self._collective(
            "all_gather", inputs, opts, lambda: self.inner.allgather(into, sent, opts), result=outputs[0]
        )

    def _allgather_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name, as below
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, opts, timeout)
        into, sent = (output, input) if self.process.pure else wire.movable((output, input), False)
        return self._collective(
            "all_gather", (input,), opts, lambda: self.inner._allgather_base(into, sent, opts), result=(output,)
        )

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists: Any, input_list: Tensors, opts: Any = None) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, opts)
        outputs = [list(row) for row in output_lists]
        inputs = list(input_list)
        pure = self.process.pure
        sent, into = wire.movable(inputs, pure), [wire.movable(row, pure) for row in outputs]

        def start() -> Any:
            return self.inner.allgather_coalesced(into, sent, opts)

        return self._collective("all_gather", inputs, opts, start, result=[t for row in outputs for t in row])

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, opts)
        outputs, inputs = list(outputs), list(inputs)
        into, sent = wire.movable(outputs, self.process.pure), wire.movable(inputs, self.process.pure)

        def start() -> Any:
            return self.inner.allgather_into_tensor_coalesced(into, sent, opts)

        return self._collective("all_gather", inputs, opts, start, result=outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        inputs = _list(input_tensors)
        if isinstance(opts, int):
            opts, root = None, opts
        opts = _options(c10d.GatherOptions, opts, timeout, rootRank=root)
        outputs = _lists(output_tensors) if output_tensors else []
        pure = self.process.pure
        sent, into = wire.movable(inputs, pure), [wire.movable(o, pure) for o in outputs]
        result = outputs[0] if outputs else ()
        return self._collective(
            "gather", inputs, opts, lambda: self.inner.gather(into, sent, opts), root=opts.rootRank, result=result
        )

    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        outputs = _list(output_tensors)
        if isinstance(opts, int):
            opts, root = None, opts
        opts = _options(c10d.ScatterOptions, opts, timeout, rootRank=root)
        inputs = _lists(input_tensors) if input_tensors else []
        pure = self.process.pure
        into, sent = wire.movable(outputs, pure), [wire.movable(i, pure) for i in inputs]
        return self._collective(
            "scatter", outputs, opts, lambda: self.inner.scatter(into, sent, opts), root=opts.rootRank, result=outputs
        )

    def reduce_scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        outputs, inputs = _list(output_tensors), _lists(input_tensors)
        opts = _options(c10d.ReduceScatterOptions, opts, timeout, reduceOp=op)
        return self._collective(
            "reduce_scatter", outputs, opts, lambda: self.inner.reduce_scatter(outputs, inputs, opts), result=outputs
        )

    def _reduce_scatter_base(
        self,
        outputTensor: torch.Tensor,  # noqa: N803
        inputTensor: torch.Tensor,  # noqa: N803
        opts: Any = None,
    ) -> dist.Work:
        output, whole = outputTensor, inputTensor
        opts = _options(c10d.ReduceScatterOptions, opts)

        def start() -> Any:
            return self.inner._reduce_scatter_base(output, whole, opts)

        return self._collective("reduce_scatter", (output,), opts, start, result=(output,))

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, opts)
        outputs, inputs = list(outputs), list(inputs)

        def start() -> Any:
            return self.inner.reduce_scatter_tensor_coalesced(outputs, inputs, opts)

        return self._collective("reduce_scatter", outputs, opts, start, result=outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        opts = _options(c10d.AllToAllOptions, opts, timeout)
        into, from_ = wire.rows((output, input), self.process.pure)
        splits = list(output_split_sizes), list(input_split_sizes)
        # With splits of one's own, ranks legitimately differ in size: then there is nothing to compare.
        n = 0 if any(splits) else input.numel() // self.size()

        def start() -> Any:
            return self.inner.alltoall_base(into, from_, *splits, opts)

        return self._collective("all_to_all", (input,), opts, start, n=n, result=(output,))

    all_to_all_single = alltoall_base

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> dist.Work:
        opts = _options(c10d.AllToAllOptions, opts)
        outputs, inputs = list(output_tensors), list(input_tensors)
        even = len({t.numel() for t in (*outputs, *inputs)}) == 1
        if even or self.process.pure:
            sent, into = wire.movable(inputs, self.process.pure), wire.movable(outputs, self.process.pure)

            def start() -> Any:
                return self.inner.alltoall(into, sent, opts)
        else:

            def start() -> Any:
                return wire.uneven_all_to_all(self.inner, outputs, inputs, opts)

        n = inputs[0].numel() if even else 0
        return self._collective("all_to_all", inputs, opts, start, n=n, result=outputs)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> dist.Work:
        opts = _options(c10d.BarrierOptions, opts, timeout)
        return self._collective("barrier", (), opts, lambda: self.inner.barrier(opts), n=1)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier. Where the engine is torch's, its own with its report; else the supervisor knows who lacks."""
        if self._recorder.recording and (self._recorder.granting or self.process.meets):
            finished(self._collective("barrier", (), None, lambda: self.inner.barrier(c10d.BarrierOptions()), n=1))
            return

        def start() -> None:
            self.inner.monitored_barrier(timeout, wait_all_ranks)

        self._collective("barrier", (), None, start, n=1)

    # --- point to point -------------------------------------------------------------------------------------

    def send(self, tensors: Any, dst: int, tag: int = 0) -> dist.Work:
        tensors = _list(tensors)
        held = [t.detach().clone() for t in tensors] if self.process.model.buffered else tensors
        sent = wire.movable(held, self.process.pure)
        return self._p2p("send", tensors, dst, tag, lambda: self.inner.send(sent, dst, tag))

    def recv(self, tensors: Any, src: int, tag: int = 0) -> dist.Work:
        tensors = _list(tensors)
        into = wire.movable(tensors, self.process.pure)
        return self._p2p("recv", tensors, src, tag, lambda: self.inner.recv(into, src, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> dist.Work:
        if not self._recorder.recording:
            return self.inner.recv_anysource(_list(tensors), tag)
        raise UnsupportedError(
            "a receive from any source matches no send until it is over, so no progress model can follow it: "
            "name the source (dist.recv(tensor, src=...))"
        )


def _list(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _lists(tensors: Any) -> list[list[torch.Tensor]]:
    """A list of lists of tensors, also from torch's shorter form, one list."""
    tensors = list(tensors)
    if tensors and isinstance(tensors[0], torch.Tensor):
        return [tensors]
    return [list(row) for row in tensors]


def _options(cls: Any, given: Any, timeout: timedelta | None = None, **values: Any) -> Any:
    """``given`` if it is a ``cls``; otherwise one made of ``values``, the first of which ``given`` may stand for."""
    if isinstance(given, cls):
        return given
    if given is not None:
        values[next(iter(values))] = given
    opts = cls()
    for name, value in values.items():
        if value is not None:
            setattr(opts, name, value)
    if timeout is not None:
        opts.timeout = timeout
    return opts
