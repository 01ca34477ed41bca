"""``harness.distributed`` and the fixture ``harness_world``, as another project's pytest session sees them."""

from __future__ import annotations

import pytest

HEAD = "import pytest, torch\nimport torch.distributed as dist\nimport harness\n\n"


def run(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + body)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


@pytest.mark.slow
def test_failures_say_what_happened_and_how_to_see_it_again(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@harness.distributed()
def test_wrong():
    assert dist.get_rank() == 0

@harness.distributed()
def test_hangs():
    if dist.get_rank():
        dist.barrier()

@harness.distributed(backend="gloo")
def test_hazard():
    other = dist.new_group(group_desc="other")
    pair = [None, other] if dist.get_rank() else [other, None]
    for work in [dist.all_reduce(torch.ones(1), group=group, async_op=True) for group in pair]:
        work.wait()

@pytest.fixture
def number():
    return 7

@pytest.mark.parametrize("other", [1, 2])
@harness.distributed(backend=["lane", "gloo"], expect={"lane": "completes", "*": "crashed"})
def test_arguments(number, other):
    assert number == 7 and other in (1, 2)
    dist.barrier()
    if dist.group.WORLD.getBackendName() == "harness_gloo":
        raise RuntimeError("as expected")
""",
    )
    result.assert_outcomes(failed=3, passed=4)
    result.stdout.fnmatch_lines_random(
        [
            "*crashed, order *; expected: completes consistent*",
            "*rank 1: AssertionError: assert 1 == 0*",
            "*MISSING under lane*",
            "*rank 1 waits for barrier world #0*",
            "*completes, order cyclic; expected: completes consistent*",
            "replay: * pytest '*test_hangs?lane-2?'*",
            "7 cells: 4 as expected, 3 unexpected",
        ]
    )


def test_a_mark_that_is_wrong_is_refused(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        "@pytest.mark.harness_world(worlds=2)\ndef test_it(harness_world):\n    pass\n",
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*mark harness_world: 'worlds' is unknown; accepted: world, backend, expect, limit*"])


def test_a_backend_that_cannot_run_here_is_a_skip_and_an_unknown_one_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
from harness import backends
from harness.backends.lane import load

class Absent:
    spec = load("lane").spec
    def available(self):
        return "no such device here"

get = backends.get
backends.get = lambda name: Absent() if name == "absent" else get(name)
"""
    )
    result = run(
        pytester,
        "@harness.distributed(backend=['absent', 'lan'])\ndef test_it():\n    pass\n",
        "-rs",
    )
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines_random(["*no such device here*", "*backend 'lan' is unknown*"])
