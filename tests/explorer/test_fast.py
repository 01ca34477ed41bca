"""The compiled machine against its oracle, the plain one: equal outcomes and equal final states."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.model.compact import arrays_of
from harness.model.execution import Execution
from harness.model.fast import run, settings
from harness.model.program import Program
from harness.model.progress import Model
from harness.model.proof import outcome

from .explore import MODELS
from .generate import program


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_equal_to_the_plain_machine(model: str) -> None:
    parsed = Model.parse(model)
    compared = 0
    for seed in range(1500):
        ours = Program.parse(program(seed))
        if any(len(ours.threads(rank)) > 1 for rank in range(ours.world)):
            continue
        plain = Execution(ours, parsed)
        plain.run()
        fast = run(arrays_of(ours), **settings(parsed))
        assert fast.outcomes == outcome(plain.progress), (seed, model)
        for rank in range(ours.world):
            assert (fast.stands[rank] == 5) == plain.hosts[rank][0].machine.ended, (seed, model, rank)
        open_parts = sum(not p.complete for i in plain.progress.instances.values() for p in i.parts)
        assert (fast.issued - fast.started).min() >= 0
        issued = sum(fast.issued) - sum(arrays_of(ours).op_ptr[:-1])
        assert issued - fast.complete.sum() == open_parts, (seed, model)
        compared += 1
    assert compared > 500


def test_threads_are_refused() -> None:
    text = "program: 1\nworld: 1\ngroups: {A: [0]}\nranks:\n  0: {main: [barrier A], saver: [barrier A]}\n"
    with pytest.raises(UsageError, match="2 threads"):
        arrays_of(Program.parse(text))
