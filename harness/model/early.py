"""What a real engine may be done with before all parts of an operation are there.

Under a progress model an operation completes everywhere at once. An engine need not wait so long: it may let a rank go
as soon as that rank's own data have moved, or lie in a buffer. MPI says so of every collective but the barrier:
completion "does not indicate that other MPI processes in the group have completed or even started the operation" (MPI
4.1, chapter 6, Collective Communication), and of a standard send, which the library may buffer (3.4). It may, and need
not: what it does depends on sizes, on the algorithm that the library picks (a root's broadcast goes by a tree, whose
inner ranks pass data on), and on timing. So a program has the outcomes of every choice, part by part.

Who needs whose data:

| call | the rank itself is done once |
| --- | --- |
| send; broadcast and scatter at the root; reduce and gather elsewhere | it has begun |
| broadcast and scatter elsewhere | the root has begun |
| everything else (reduce and gather at the root, symmetric collectives, recv, creations) | all have begun |
"""

from __future__ import annotations

from harness.model.progress import Part

_FROM_ROOT, _TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")


def may_finish(part: Part) -> bool:
    """Whether an engine may be done with this rank's part, though its instance is not complete."""
    if not part.started or part.complete or part.instance is None:
        return False
    op = part.op
    if op.kind in _FROM_ROOT:
        return any(other.started and other.rank == op.root for other in part.instance.parts)
    return op.kind == "send" or (op.kind in _TO_ROOT and part.rank != op.root)
