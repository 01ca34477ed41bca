"""A second checkout or release of the package under test, in front of the one that is installed.

An overlay is a folder that holds nothing but that package; processes started with it first on ``PYTHONPATH`` use it,
with everything else (one torch) as installed. Nothing in site-packages is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness.errors import UsageError, VariantError

PACKAGE = "deepspeed"
_VERSION = re.compile(r"\d+(\.\d+)+\S*")


def overlay(what: str, folder: Path) -> tuple[str, Path]:
    """The name and the folder of an overlay of ``what``: a version such as 0.19.3, or the path of a checkout.

    Made inside ``folder``, where a release is kept and used again. UsageError if ``what`` is neither; VariantError if
    pip can't get the release.
    """
    path = Path(what).expanduser()
    if path.is_dir():
        return _of_checkout(path.resolve(), folder)
    if _VERSION.fullmatch(what):
        return what, _of_release(what, folder)
    raise UsageError(f"{what!r} is no version (as in 0.19.3) and no folder of a {PACKAGE} checkout")


def environment(place: Path) -> dict[str, str]:
    """The environment of a process that is to use the overlay."""
    path = [str(place), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _of_checkout(checkout: Path, folder: Path) -> tuple[str, Path]:
    package = checkout / PACKAGE
    if not (package / "__init__.py").is_file():
        raise UsageError(f"{checkout} is no checkout: it has no {PACKAGE}/__init__.py")
    version_file = checkout / "version.txt"
    version = version_file.read_text(encoding="utf-8").strip() if version_file.is_file() else "0"
    name = f"{checkout.name} {_commit(checkout)}".strip()
    place = folder / re.sub(r"\W+", "-", str(checkout)).strip("-")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    # A link to the package alone: a checkout has other folders (tests, benchmarks) that would hide those of others.
    (place / PACKAGE).symlink_to(package, target_is_directory=True)
    local = re.sub(r"[^a-zA-Z0-9]+", ".", name).strip(".").lower()
    info = place / f"{PACKAGE}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}+{local}\n")
    return name, place


def _commit(checkout: Path) -> str:
    """The short commit of a git checkout, or nothing."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _of_release(version: str, folder: Path) -> Path:
    place = folder / f"{PACKAGE}-{version}"
    if (place / PACKAGE / "__init__.py").is_file():
        return place
    partial = folder / f"{PACKAGE}-{version}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    command += ["--target", str(partial), f"{PACKAGE}=={version}"]
    # Its setup asks for the accelerator, and would build extensions that no scenario on a CPU uses.
    build = {**os.environ, "DS_BUILD_OPS": "0", "DS_ACCELERATOR": os.environ.get("DS_ACCELERATOR", "cpu")}
    done = subprocess.run(command, capture_output=True, text=True, env=build, check=False)
    if done.returncode != 0:
        raise VariantError(f"pip could not get {PACKAGE} {version}:\n{done.stderr.strip()[-2000:]}")
    partial.rename(place)
    return place
