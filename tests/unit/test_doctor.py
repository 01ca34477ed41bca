"""What `harness doctor` finds, and what its exit code means."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.doctor import Checkup, Finding, examine, traps


def _subjects(installed: dict[str, str], env: dict[str, str], home: Path) -> dict[str, Finding]:
    return {found.subject: found for found in traps(installed, {"DS_ACCELERATOR": "cpu", **env}, home)}


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    installed = {"torch": "2.13.0+cpu", "deepspeed": "0.19.8", "pytest": "9.1.1", "pytest-forked": "1.7.5"}
    assert _subjects(installed, {}, tmp_path) == {}


@pytest.mark.parametrize(
    ("subject", "installed", "env", "fault"),
    [
        ("mpich and impi-rt", {"mpich": "5.0.2", "impi-rt": "2021.18.1"}, {}, True),
        ("pytest-forked", {"pytest-forked": "1.7.5", "pytest": "9.2.0"}, {}, True),
        ("DeepSpeed", {"deepspeed": "0.19.2"}, {}, False),
        ("transformers", {"deepspeed": "0.19.8", "transformers": "5.24.0"}, {}, False),
        ("TORCH_DISTRIBUTED_DEBUG", {}, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, False),
        ("PYTHONHASHSEED", {}, {"PYTHONHASHSEED": "0"}, False),
        ("NCCL_LAUNCH_ORDER_IMPLICIT", {}, {"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}, False),
    ],
)
def test_traps(subject: str, installed: dict[str, str], env: dict[str, str], fault: bool, tmp_path: Path) -> None:
    found = _subjects(installed, env, tmp_path)
    assert list(found) == [subject]
    assert found[subject].fault is fault


def test_a_lock_that_a_killed_compile_left(tmp_path: Path) -> None:
    lock = tmp_path / ".cache/torch_extensions/py311_cpu/shm/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert _subjects({}, {}, tmp_path) == {}, "a compile may be under way"
    os.utime(lock, (0, 0))
    assert _subjects({}, {}, tmp_path)["torch extensions"].remedy == f"rm {lock}"


def test_health_is_of_the_wanted_backends() -> None:
    lacking = {"gloo": "", "nccl": "no CUDA"}
    checkup = Checkup({}, {}, (), lacking, (Finding("a", "to know"),))
    assert checkup.healthy(["gloo"])
    assert not checkup.healthy(["gloo", "nccl"])
    assert not Checkup({}, {}, (), lacking, (Finding("a", "will hang", fault=True),)).healthy(["gloo"])


def test_examine_asks_every_registered_backend() -> None:
    checkup = examine(["mpi:queue"])
    assert checkup.lacking["lane"] == "", "gloo is in every torch that this package supports"
    assert {"oneccl", "mpi", "mpi:queue", "nccl", "xccl", "ccl", "gloo-detail", "lanes:2"} <= set(checkup.lacking)
    assert {"open files", "shared memory"} <= {found.subject for found in checkup.findings}


def test_the_command_says_what_to_install_and_its_exit_code_is_for_scripts() -> None:
    checkup = examine()
    for wanted, needed in ((["gloo"], "gloo"), (["nccl"], "nccl")):
        result = CliRunner().invoke(main, ["doctor", "--json", "--backend", *wanted])
        shown = json.loads(result.output)
        assert shown["healthy"] is checkup.healthy([needed])
        assert result.exit_code == (0 if shown["healthy"] else 1)
    text = CliRunner().invoke(main, ["doctor"]).output
    assert all(reason in text for reason in checkup.lacking.values())


def test_an_unknown_backend_is_wrong_use() -> None:
    assert CliRunner().invoke(main, ["doctor", "--backend", "smoke-signals"]).exit_code == 2
