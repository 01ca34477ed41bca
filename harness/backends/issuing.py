"""How one rank's operation goes: recorded first, then at once to the transport, or held until it is granted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from harness.backends.batch import Batch
from harness.backends.work import RecordedWork, await_transport, coalesced
from harness.errors import UnsupportedError
from harness.model.operation import Group, Operation
from harness.record.recorder import Recorder
from harness.record.ticket import Ticket

if TYPE_CHECKING:
    from harness.backends.process import Process

Tensors = Sequence[torch.Tensor]
Start = Callable[[], Any]


class _Coalescing(threading.local):
    """What the calling thread coalesces on a group: other threads' calls on it are none of that."""

    works: list[RecordedWork] | None = None
    batch: Batch | None = None


class Issuer(dist.ProcessGroup):
    """One process group of one rank, without the calls themselves.

    ``inner`` is the transport's group over the same ranks; ``identity`` names it and its world ranks in the record.
    """

    def __init__(self, process: Process, identity: Group, inner: dist.ProcessGroup, torch_name: str) -> None:
        super().__init__(identity.ranks.index(process.rank), len(identity.ranks))
        self.identity = identity
        self.process = process
        self.inner = inner
        self._recorder: Recorder = process.recorder
        self._torch_name = torch_name
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._numbers_epoch = -1
        self._open = _Coalescing()
        self._count = 0

    def _collective(
        self,
        kind: str,
        tensors: Tensors,
        opts: Any,
        start: Start,
        *,
        n: int | None = None,
        root: int | None = None,
        result: Tensors = (),
    ) -> dist.Work | None:
        """Issue a collective; ``tensors`` give its size and dtype, ``root`` is a group rank.

        Returns None if the caller asked for no handle (``opts.asyncOp`` is false): then it is over.
        """
        self._count += 1
        recorder = self._recorder
        if not recorder.recording:
            return start()
        number = self._number(kind, tensors, n, root=None if root is None else self.identity.ranks[root])
        model = self.process.model
        if not getattr(opts, "asyncOp", True) and self._open.works is None and not model.blocks_at_issue:
            self._call(number, start)
            return None
        ticket = Ticket(start if recorder.granting else None)
        work = RecordedWork(recorder, (ticket,), result)
        with self.process.order:
            recorder.issue((number,), (ticket,), depth=3)
            if not recorder.granting:
                if model.blocks_at_issue:
                    recorder.flush()  # the engine may never return from the call
                ticket.work = start()
        if recorder.granting:
            self._block_at_issue((work,))
        if self._open.works is not None:
            self._open.works.append(work)
        return work

    def _call(self, number: int, start: Start) -> None:
        """Issue an operation and wait for it."""
        recorder = self._recorder
        if recorder.granting:
            ticket = Ticket(start)
            seq = recorder.call(number, ticket, depth=4)
            work = ticket.work
            if work is not None:
                await_transport(recorder, work)
        else:
            with self.process.order:
                work = start()  # while it is under way, there is time to record it
                seq = recorder.call(number, depth=4)
            if work is not None:
                work.wait()
        recorder.complete(seq)

    def _p2p(self, kind: str, tensors: Tensors, peer: int, tag: int, start: Start) -> dist.Work:
        """Issue a point-to-point call, or keep it for the batch it belongs to; ``peer`` is a group rank."""
        if getattr(self.inner, "no_p2p", ""):  # refused before it is recorded: it never is an operation
            raise UnsupportedError(self.inner.no_p2p)
        recorder = self._recorder
        if not recorder.recording:
            return start()
        number = self._number(kind, tensors, None, peer=self.identity.ranks[peer], tag=tag)
        ticket = Ticket(start if recorder.granting else None)
        if recorder.granting:
            self.process.keep(ticket)
        work = RecordedWork(recorder, (ticket,), tensors, p2p=True)
        batch = self._open.batch or self.process.open_batch()
        if batch is None:
            with self.process.order:
                recorder.issue((number,), (ticket,), depth=3)
                self._begin_p2p(((work, start),))
        else:
            batch.add(number, ticket, work, start)
            if batch.full:
                self._issue_batch(batch)
        return work

    def _issue_batch(self, batch: Batch) -> None:
        with self.process.order:
            self._recorder.issue(batch.numbers, batch.tickets, depth=4)
            self._begin_p2p(batch.calls)

    def _begin_p2p(self, calls: Sequence[tuple[RecordedWork, Start]]) -> None:
        if self._recorder.granting:
            self._block_at_issue([work for work, _ in calls])
            return
        if self.process.model.blocks_at_issue:
            self._recorder.flush()  # the engine may never return from the calls
        for work, start in calls:
            work.tickets[0].work = start()

    def _block_at_issue(self, works: Sequence[RecordedWork]) -> None:
        model = self.process.model
        if model.host_blocking:
            for work in works:
                work.settle_unrecorded()
        elif model.first_use:
            self._recorder.await_release()

    def _number(
        self,
        kind: str,
        tensors: Tensors,
        n: int | None,
        *,
        root: int | None = None,
        peer: int | None = None,
        tag: int = 0,
    ) -> int:
        """The recorder's number for the operation (the same operation is described once an epoch)."""
        recorder = self._recorder
        if self._numbers_epoch != recorder.epoch:
            self._numbers.clear()
            self._numbers_epoch = recorder.epoch
        if n is None:
            n = tensors[0].numel() if len(tensors) == 1 else sum(t.numel() for t in tensors)
        dtype = tensors[0].dtype if tensors else torch.uint8
        key = (kind, n, dtype, root, peer, tag, recorder.label)
        number = self._numbers.get(key)
        if number is None:
            name = str(dtype).removeprefix("torch.")
            op = Operation(kind, self.identity, root, peer, tag, n, name, recorder.label)
            number = self._numbers[key] = recorder.operation(op)
        return number

    # --- coalescing -----------------------------------------------------------------------------------------

    def _start_coalescing(self, device_type: Any = None) -> None:
        """From here, calls on this group get one handle together; point-to-point calls are one batch."""
        self._open.works, self._open.batch = [], Batch(None)

    def _end_coalescing(self, device_type: Any = None) -> dist.Work:
        """The handle of all calls since `_start_coalescing`."""
        works, batch = self._open.works or [], self._open.batch
        self._open.works = self._open.batch = None
        if batch is not None and batch.calls:
            self._issue_batch(batch)
            works = works + [work for work, _ in batch.calls]
        return coalesced(self._recorder, works)

    # --- what torch asks of a group -------------------------------------------------------------------------

    @property
    def group_name(self) -> str:
        """torch's own name of the group (the base class knows none for a group without its own backends)."""
        return self._torch_name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(self.process.device)]

    def name(self) -> str:
        """Not the transport's own: C++ that finds ``gloo`` here would look for gloo's own group inside."""
        return self.process.spec.torch_name

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return self.process.spec.torch_name

    _get_backend_name = getBackendName

    def _get_backend(self, device: torch.device) -> Any:
        return self.inner._get_backend(device)

    def _set_sequence_number_for_group(self) -> None:
        self._count = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._count

    def set_timeout(self, timeout: Any) -> None:
        self.inner.set_timeout(timeout)

    def _set_default_timeout(self, timeout: Any) -> None:
        self.inner._get_backend(torch.device(self.process.device))._set_default_timeout(timeout)

    def shutdown(self) -> None:
        """torch's `destroy_process_group` comes here; the transport's group stays with the process."""
        self.process.on_destroy(self)

    def abort(self) -> None:
        """Nothing to abort: what was not granted never reached the transport."""

    def _wait_for_pending_works(self) -> None:
        """torch asks this of groups with completion hooks; there are none."""

    def _has_hooks(self) -> bool:
        return False

    def _register_on_completion_hook(self, hook: Any) -> None:
        raise UnsupportedError("completion hooks are NCCL's own: use the handle's get_future().then(...)")

    def _enable_collectives_timing(self) -> None:
        raise UnsupportedError("collectives timing is NCCL's own: the evidence has the time of every event")

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("gloo cannot split groups: make the smaller group with torch.distributed.new_group")

    def merge_remote_group(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("gloo cannot merge groups: start one world that holds all ranks")
