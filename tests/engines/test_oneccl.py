"""oneCCL's binding where the library is installed: its errors in words, and what it does not offer."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from harness import backends
from harness.backends import oneccl_library
from harness.world import pool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(backends.get("oneccl").available() is not None, reason=str(backends.get("oneccl").available())),
]


def _bad_call() -> str:
    """A data type there is none of: what the library answers."""
    library = oneccl_library.library()
    data = torch.ones(2)
    comm = dist.distributed_c10d._get_default_group().inner.comm.join()
    try:
        library.call("onecclAllReduce", data.data_ptr(), data.data_ptr(), 2, 77, 0, comm, None, comm=comm)
    except oneccl_library.OneCCLError as error:
        return str(error)
    return "nothing"


def test_an_error_code_comes_with_the_call_and_the_librarys_own_words() -> None:
    for told in pool.get(2, "oneccl").run(_bad_call).values:
        assert told.startswith("onecclAllReduce returned 11 (onecclPluginException): ")
        assert "onecclDataType_t" in told


def _refused() -> list[str]:
    told = []
    for call in (
        lambda: dist.send(torch.ones(1), 1 - dist.get_rank()),
        lambda: dist.all_reduce(torch.ones(1, dtype=torch.int16)),
    ):
        try:
            call()
        except NotImplementedError as error:
            told.append(str(error))
    return told


def test_what_the_library_lacks_is_refused_with_what_to_use_instead() -> None:
    for point_to_point, short_sum in pool.get(2, "oneccl").run(_refused).values:
        assert "no point-to-point calls on host buffers: use a broadcast" in point_to_point
        assert short_sum.startswith("oneCCL moves no int16; accepted: int8, ")


def _many_communicators() -> list[float]:
    """Twenty groups over the same ranks, each its own communicator, used in the same order."""
    sums = []
    for index in range(20):
        group = dist.new_group([0, 1])
        data = torch.full((3,), float(index + dist.get_rank()))
        dist.all_reduce(data, group=group)
        sums.append(float(data[0]))
    return sums


def test_many_communicators() -> None:
    expected = [2.0 * index + 1 for index in range(20)]
    assert pool.get(2, "oneccl").run(_many_communicators).values == [expected, expected]


def _version() -> str:
    return oneccl_library.library().version()


def test_the_version_is_in_the_evidence() -> None:
    lines: list[dict[str, object]] = []
    version, _ = pool.get(2, "oneccl").run(_version, sink=lines.append).values
    assert [line["value"] for line in lines if line.get("name") == "oneccl"] == [version, version]
