"""A suite that cannot fail checks nothing: break what it relies on, and see it object."""

from __future__ import annotations

import pytest
import torch

from harness import testing
from harness.errors import WrongValuesError
from harness.testing import values
from harness.testing.hazards import HAZARDS


def test_detector_that_never_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.world.supervisor.proof", lambda progress: None)
    found = testing.run_hazard(HAZARDS["inversion"], "lane", limit=0.5)
    assert found.verdict == "timeout"
    objection = testing.objection(HAZARDS["inversion"], "lane", found)
    assert objection is not None
    assert "timeout" in objection


def test_wrong_value_is_shown() -> None:
    with pytest.raises(WrongValuesError, match=r"got \[1.0\], expected \[2.0\]"):
        values.same("x", torch.ones(1), torch.full((1,), 2.0))


def test_negative_zero_is_a_wrong_value() -> None:
    with pytest.raises(WrongValuesError):
        values.same("x", torch.tensor([-0.0]), torch.tensor([0.0]))


def test_verdict_of_another_model_is_unexpected() -> None:
    deadlock = testing.Verdict("deadlock", "cyclic")
    assert testing.objection(HAZARDS["inversion"], "lane", deadlock) is None
    assert testing.objection(HAZARDS["inversion"], "independent", deadlock) is not None
