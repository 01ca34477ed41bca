"""What a backend over gloo keeps per process: its groups, and torch.distributed's own functions led to them.

Creation and destruction of groups are collectives of the record too. ``new_group`` is one over the whole world (with
``use_local_synchronization``, a barrier of the new group's members). ``destroy_process_group(group)`` is one over the
group; the teardown of everything at a script's end (``destroy_process_group()``) and after a failure is local and not
recorded.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d as torch_c10d

from harness.backends.batch import Batch
from harness.backends.group import RecordedGroup
from harness.backends.issuing import Issuer
from harness.backends.spec import BackendSpec
from harness.backends.work import await_transfer
from harness.model.operation import Group, Operation
from harness.model.progress import Model
from harness.record.recorder import Recorder
from harness.record.ticket import Ticket

#: The name of the default group in the record, whatever torch calls it.
WORLD = "world"
#: Far beyond any run: a hang is the supervisor's business, not gloo's.
TIMEOUT = timedelta(hours=12)


class Behaviour:
    """The traits of a model that the rank's side must know."""

    def __init__(self, model: Model) -> None:
        self.host_blocking = model.name == "host_blocking"
        self.first_use = model.name == "first_use"
        self.buffered = model.buffered
        self.blocks_at_issue = self.host_blocking or self.first_use


class Process:
    """One rank's groups under one backend. Making it initializes torch.distributed."""

    #: torch's type of the devices whose tensors the transport moves.
    device = "cpu"
    #: Whether ranks wait for each other in the transport where they create or destroy a group.
    meets = False
    #: Held while an operation is recorded and begun, where an engine matches operations by the order of the calls.
    order: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()

    def __init__(self, spec: BackendSpec, rank: int, world: int, store: dist.Store, recorder: Recorder) -> None:
        self.spec, self.rank, self.world, self.recorder = spec, rank, world, recorder
        self.model = Behaviour(Model.parse(spec.model))
        self.pure = not spec.granting
        self._store = store
        self._inner: dict[tuple[int, ...], list[dist.ProcessGroup]] = {}
        self._used: dict[tuple[int, ...], int] = {}
        self._names: dict[Group, int] = {}
        self._created = 0
        self._identity: Group | None = None
        self._transfers: list[Ticket] = []
        self._batches = threading.local()
        dist.Backend.register_backend(spec.torch_name, self._create, extended_api=True, devices=[self.device])
        self._new_group = torch_c10d._new_group_with_tag
        torch_c10d._new_group_with_tag = self.new_group
        self._check_batch = torch_c10d._check_p2p_op_list
        torch_c10d._check_p2p_op_list = self._begin_batch
        self._initialize()
        recorder.at_begin(self._begin)

    # --- epochs ---------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self._used.clear()
        self._names.clear()
        self._created = 0
        self._identity = Group(WORLD, tuple(range(self.world)))
        dist.init_process_group(
            self.spec.torch_name, store=self._store, rank=self.rank, world_size=self.world, timeout=TIMEOUT
        )
        self._present(torch_c10d._get_default_group())

    def _begin(self) -> None:
        """Leave nothing of the last task: its groups go, and names and the transport's groups count anew.

        The transport's groups are used again, the k-th over the same ranks for the k-th, whatever order the last
        task ended in on this rank; a model leaves them clean, and a real engine's half-met one ends the world.
        """
        for ticket in self._transfers:
            if ticket.work is not None:
                await_transfer(ticket)
        self._transfers.clear()
        self._batches = threading.local()
        with self.recorder.unrecorded():
            if not dist.is_initialized():
                self._initialize()
                return
            default = torch_c10d._get_default_group()
            for group in list(torch_c10d._world.pg_map):
                if group is not default:
                    dist.destroy_process_group(group)
            torch_c10d._world.pg_coalesce_state.clear()
        torch_c10d._world.group_count = 1
        self._used = {default.identity.ranks: 1}
        self._names = {default.identity: 1}
        self._created = 0

    # --- groups ---------------------------------------------------------------------------------------------

    def _create(self, options: Any, _: Any) -> RecordedGroup:
        """torch makes a group of this backend: called in members only."""
        ranks = tuple(options.global_ranks_in_group) or tuple(range(self.world))
        identity, self._identity = self._identity, None
        if identity is None or identity.ranks != ranks:
            identity = self._named(options.group_id, ranks)
        return RecordedGroup(self, identity, self._transport(ranks), options.group_id)

    def _transport(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The next gloo group over ``ranks``; it is connected only if this process has none left."""
        index = self._used.get(ranks, 0)
        self._used[ranks] = index + 1
        groups = self._inner.setdefault(ranks, [])
        while len(groups) <= index:
            groups.append(self._connect(ranks, len(groups)))
        return groups[index]

    def _connect(self, ranks: tuple[int, ...], index: int) -> dist.ProcessGroup:
        store = dist.PrefixStore(f"harness/{'-'.join(map(str, ranks))}/{index}", self._store)
        rank = ranks.index(self.rank)
        gloo = c10d.ProcessGroupGloo(store, rank, len(ranks), timeout=TIMEOUT)
        gloo._set_sequence_number_for_group()
        group = dist.ProcessGroup(store, rank, len(ranks))
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._set_group_name(f"harness_{'_'.join(map(str, ranks))}_{index}")
        return group

    def new_group(
        self,
        ranks: Sequence[int] | None = None,
        timeout: timedelta | None = None,
        backend: str | None = None,
        *args: Any,
        use_local_synchronization: bool = False,
        group_desc: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """In place of torch's: record the creation, wait for it, and let torch make the group with this backend."""
        members = tuple(range(self.world)) if ranks is None else tuple(ranks)
        if kwargs.get("sort_ranks", True):
            members = tuple(sorted(members))
        self._created += not use_local_synchronization
        identity = self._named(group_desc or f"group{self._created}", members)
        if self.recorder.recording and (not use_local_synchronization or self.rank in members):
            kind = "barrier" if use_local_synchronization else "new_group"
            op = Operation(kind, identity, n=1, dtype="uint8", label="new_group")
            # Of new members alone, the transport has no group yet.
            self._meet(op, None if use_local_synchronization else torch_c10d._get_default_group().inner)
        self._identity = identity
        group = self._new_group(
            ranks,
            timeout,
            self.spec.torch_name,
            *args,
            use_local_synchronization=use_local_synchronization,
            group_desc=group_desc,
            **kwargs,
        )
        self._identity = None
        if isinstance(group, RecordedGroup):
            self._present(group)
        return group

    def _named(self, name: str, ranks: tuple[int, ...]) -> Group:
        """A group's identity: of equal names over equal ranks, the second is ``name#2``."""
        count = self._names[Group(name, ranks)] = self._names.get(Group(name, ranks), 0) + 1
        return Group(name if count == 1 else f"{name}#{count}", ranks)

    def _present(self, group: Any) -> None:
        """Let torch report the transport as the group's backend: callers choose their ways by it."""
        torch_c10d._world.pg_map[group] = (dist.Backend(self.spec.transport), torch_c10d._world.pg_map[group][1])

    def on_destroy(self, group: Issuer) -> None:
        """A group is shut down: a collective over it, unless everything ends, or the caller cleans up after a failure.

        A rank that fails takes its groups down with it; if it waited for the others there, its own error would be
        lost behind their wait.
        """
        failing = self.recorder.stopped or sys.exc_info()[0] is not None
        if self.recorder.recording and not failing and not _all_ends():
            self._meet(Operation("destroy_group", group.identity, n=1, dtype="uint8"), group.inner)

    def _meet(self, op: Operation, inner: dist.ProcessGroup | None) -> None:
        """Issue an operation without data and wait until all its ranks have; ``inner`` is their transport's group."""
        recorder = self.recorder
        ticket = Ticket(_nothing if recorder.granting else None)
        recorder.issue(
            (recorder.operation(op),), (ticket,), hold=not self.model.blocks_at_issue and recorder.granting, depth=4
        )
        if recorder.granting and self.model.host_blocking:
            recorder.pass_gates((ticket,))
            return
        if recorder.granting and self.model.first_use:
            recorder.await_release()
        recorder.wait((ticket,), at_issue=True)
        recorder.complete(ticket.seq)

    # --- point to point -------------------------------------------------------------------------------------

    def keep(self, ticket: Ticket) -> None:
        """Hold a transfer until it is over: gloo drops one whose handle is gone, and the peer would wait for ever."""
        if len(self._transfers) >= 1000:
            self._transfers = [t for t in self._transfers if not t.waited]
        self._transfers.append(ticket)

    def _begin_batch(self, calls: Sequence[dist.P2POp]) -> None:
        """torch checks a batch before it makes its calls one by one: from here they belong together."""
        self._check_batch(calls)
        self._batches.open = Batch(len(calls))

    def open_batch(self) -> Batch | None:
        """The batch that the calling thread's point-to-point call belongs to."""
        batch: Batch | None = getattr(self._batches, "open", None)
        if batch is None:
            return None
        if len(batch.calls) + 1 >= (batch.size or 0) or not _called_by(torch_c10d.batch_isend_irecv):
            self._batches.open = None
        return batch if _called_by(torch_c10d.batch_isend_irecv) else None


def _nothing() -> None:
    """What a creation or destruction has to hand to the transport."""


def _called_by(function: Any) -> bool:
    """Whether ``function`` is among the callers close by."""
    code = inspect.unwrap(function).__code__
    frame: Any = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _all_ends() -> bool:
    """Whether `destroy_process_group` was called for everything."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "destroy_process_group":
        frame = frame.f_back
    if frame is None:
        return False
    group = frame.f_locals.get("group")
    return group is None or group is dist.GroupMember.WORLD
