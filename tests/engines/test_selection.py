"""Names, models, and what is said where an engine is lacking."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import backends
from harness.backends.devices import devices
from harness.errors import UsageError
from harness.model.progress import Model

ENGINES = {
    "gloo-detail": ("gloo", "host_blocking"),
    "oneccl": ("oneccl", "host_blocking"),
    "oneccl:lazy": ("oneccl", "host_blocking"),
    "oneccl:queue": ("oneccl", "lane"),
    "mpi": ("mpi", "independent+buffered"),
    "mpi:blocking": ("mpi", "host_blocking+buffered"),
    "mpi:queue": ("mpi", "lane+buffered"),
    "nccl": ("nccl", "independent"),
    "nccl:lazy": ("nccl", "first_use"),
    "nccl:blocking": ("nccl", "independent"),
    "xccl": ("xccl", "lane"),
    "xccl:blocking": ("xccl", "lane"),
    "ccl": ("ccl", "lane"),
}


@pytest.mark.parametrize("name", ENGINES)
def test_names_select_engines_that_run_as_they_like(name: str) -> None:
    spec = backends.get(name).spec
    assert (spec.name, spec.transport, spec.model) == (name, *ENGINES[name])
    assert not spec.granting
    assert str(Model.parse(spec.model)) == spec.model


@pytest.mark.parametrize(
    "name", ["oneccl:", "oneccl:fast", "mpi:lazy", "nccl:2", "xccl:lazy", "ccl:lazy", "gloo-detail:3"]
)
def test_unknown_forms_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError, match=r"accepted: |takes no parameter"):
        backends.get(name)


def test_engines_are_listed() -> None:
    assert {name.partition(":")[0] for name in ENGINES} <= {name.partition(":")[0] for name in backends.names()}


@pytest.mark.parametrize("name", ["nccl", "xccl", "ccl"])
def test_what_lacks_for_an_accelerator_is_said_with_what_to_install(name: str) -> None:
    reason = backends.get(name).available()
    if reason is None:
        pytest.skip(f"{name} can run here")
    assert "install" in reason or "device" in reason


# --- devices ------------------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_no_devices(tmp_path: Path) -> None:
    assert devices(tmp_path) == []


def test_nvidia_devices_and_driver(tmp_path: Path) -> None:
    for index in range(2):
        _write(tmp_path / f"proc/driver/nvidia/gpus/000{index}/information", "Model: \t\t NVIDIA H200\nIRQ: 5\n")
    _write(
        tmp_path / "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Tue Feb 25 2025\nGCC version: gcc 13.2.0\n",
    )
    (found,) = devices(tmp_path)
    assert (found.kind, found.names, found.driver) == ("cuda", ("NVIDIA H200",) * 2, "570.124.06")
    assert str(found) == "2 x NVIDIA H200 (driver 570.124.06)"


def test_intel_devices_and_not_other_vendors(tmp_path: Path) -> None:
    driver = tmp_path / "sys/bus/pci/drivers/xe"
    driver.mkdir(parents=True)
    for number, vendor in ((128, "0x8086"), (129, "0x1a03")):
        card = tmp_path / f"sys/class/drm/renderD{number}/device"
        _write(card / "vendor", vendor + "\n")
        _write(card / "device", "0x0bd5\n")
        (card / "driver").symlink_to(driver)
    (found,) = devices(tmp_path)
    assert (found.kind, found.names, found.driver) == ("xpu", ("Intel 0x0bd5",), "xe of the kernel")
