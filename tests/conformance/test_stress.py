"""Random groups and orders in standing worlds: what is predicted happens, and nothing ever stalls.

What may make a world stall, and is ruled out here: a stop that comes before its task has begun in a rank; a grant of a
task that is over; operations handed to gloo in different orders by different ranks; the transport's groups drawn
differently after a run that was cut short; a transfer whose handle nobody kept. Each would show as a verdict of
``timeout``, or as a wrong value, some examples after it.
"""

from __future__ import annotations

import pytest

from harness.testing import stress


@pytest.mark.slow
@pytest.mark.parametrize(("world", "backend", "examples"), [(2, "lane", 60), (4, "lane", 60), (8, "lane", 20)])
def test_predicted_verdicts(world: int, backend: str, examples: int) -> None:
    found = [text for seed in range(examples) if (text := stress.check(world, backend, seed)) is not None]
    assert found == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["lane", "independent", "lanes:2", "host_blocking", "first_use"])
@pytest.mark.parametrize("world", [2, 4, 8])
def test_many_predicted_verdicts(world: int, backend: str) -> None:
    found = [text for seed in range(1000, 3000) if (text := stress.check(world, backend, seed)) is not None]
    assert found == []


def test_examples_differ_and_contain_both_verdicts() -> None:
    """The stress would be worth little if its examples were alike or all harmless."""
    examples = {stress.draw(4, seed) for seed in range(60)}
    assert len(examples) > 55
    verdicts = [stress.predict(example, "lane") for example in examples]
    assert verdicts.count("deadlock") > 5
    assert verdicts.count("completes") > 20
