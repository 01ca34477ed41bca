"""The built wheel, installed beside nothing of this repository, in the sample project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, to be found before the working tree."""
    folder = tmp_path_factory.mktemp("installed")
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)])
    return folder


def _run(command: list[str], cwd: Path | None = None, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path) if path else ""}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_wheel_is_typed_and_carries_what_it_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        points = next(name for name in names if name.endswith("entry_points.txt"))
        entry_points = archive.read(points).decode()
    assert {"harness/py.typed", "harness/report/page/page.html.j2", "harness/script/boot/sitecustomize.py"} <= names
    assert "[pytest11]\nharness = harness.plugin" in entry_points
    assert not [name for name in names if name.startswith(("tests/", "examples/"))]


@pytest.mark.timeout(300)
def test_the_sample_project_runs_on_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "sample_project", project, ignore=shutil.ignore_patterns(".harness"))
    done = _run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"], project, installed)
    assert "12 cells: 12 as expected" in done.stdout
    (report,) = project.glob(".harness/*/report.html")
    assert f"report:   {report.relative_to(project)}" in done.stdout
    assert "DEADLOCK under lane" in report.read_text()
    where = _run([sys.executable, "-c", "import harness; print(harness.__file__)"], project, installed)
    assert where.stdout.startswith(str(installed)), "not the working tree's"
    narrowed = [sys.executable, "-m", "pytest", "-q", "--backend", "lane", "--world", "2", "-p", "no:cacheprovider"]
    assert "1 cell: 1 as expected" in _run(narrowed, project, installed).stdout
    table = _run([sys.executable, "-m", "harness", "report"], project, installed).stdout
    assert "test_average.test_one_order_serves_every_backend" in table


def test_others_can_type_check_against_it(installed: Path) -> None:
    pytest.importorskip("mypy")
    code = (
        "import harness\n\n\n@harness.distributed(world=2)\ndef test() -> None: ...\n\n\nreveal_type(harness.World)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "-c", code]
    assert "World" in _run(command, installed.parent, installed).stdout
