"""A second checkout in front of the installed package, and what is refused."""

import subprocess
import sys

import pytest

from harness.errors import UsageError
from harness.variants.overlay import environment, overlay


@pytest.fixture
def checkout(tmp_path):
    """What a checkout has: the package, a version, and folders that must not get in front of anything."""
    root = tmp_path / "My Checkout"
    for package in ("deepspeed", "benchmarks", "tests"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("WHERE = __file__\n")
    (root / "version.txt").write_text("1.2.3\n")
    return root


def seen(place, expression):
    code = f"import importlib.metadata, importlib.util, deepspeed; print({expression})"
    done = subprocess.run([sys.executable, "-c", code], env=environment(place), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_checkout_is_used_by_processes_that_get_its_environment_and_nothing_else_of_it_is(checkout, tmp_path):
    name, place = overlay(str(checkout), tmp_path / "overlays")
    assert name.startswith("My Checkout")
    assert seen(place, "deepspeed.WHERE") == str(place / "deepspeed" / "__init__.py")
    assert seen(place, "importlib.metadata.version('deepspeed')").startswith("1.2.3+my.checkout")
    assert sorted(path.name.partition("-")[0] for path in place.iterdir()) == ["deepspeed", "deepspeed"]


def test_a_checkout_that_changed_is_seen_as_it_is_now(checkout, tmp_path):
    _, place = overlay(str(checkout), tmp_path / "overlays")
    (checkout / "deepspeed" / "__init__.py").write_text("WHERE = 'changed'\n")
    assert overlay(str(checkout), tmp_path / "overlays")[1] == place
    assert seen(place, "deepspeed.WHERE") == "changed"


@pytest.mark.parametrize("what", ["/no/such/folder", "main", "v0.19", ""])
def test_what_is_neither_version_nor_folder_is_refused(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"is no version \(as in 0.19.3\) and no folder"):
        overlay(what or "not-there", tmp_path)


def test_a_folder_without_the_package_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"is no checkout: it has no deepspeed/__init__\.py"):
        overlay(str(tmp_path), tmp_path / "overlays")
