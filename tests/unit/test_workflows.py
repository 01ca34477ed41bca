"""What CI runs is what people run: README's commands, and the jobs of matrix.yaml."""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMMANDS = [f"python3 -m pip install tox && python3 -m tox run -e {name}" for name in ("repro", "test")]


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def tox_environments() -> set[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    names = [section.removeprefix("testenv:") for section in parser.sections() if section.startswith("testenv:")]
    return {expanded for name in names for expanded in _expanded(name)}


def _expanded(name: str) -> list[str]:
    """``lab-{cuda,xpu}`` is two environments."""
    head, brace, rest = name.partition("{")
    if not brace:
        return [name]
    choices, _, tail = rest.partition("}")
    return [f"{head}{choice}{tail}" for choice in choices.split(",")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pull_request_runs_the_commands_of_the_readme(command: str) -> None:
    steps = [step.get("run") for job in workflow("pull-request")["jobs"].values() for step in job["steps"]]
    assert command in steps
    assert command in (ROOT / "README.md").read_text().splitlines()


def test_ci_runs_the_command_for_tests_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "python3 -m tox run -e test " in script
    assert "lint,types" in script


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The jobs as the nightly's first step writes them, by the command that its tox environment has."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    path = tmp_path_factory.mktemp("jobs") / "jobs.json"
    command = parser["testenv:jobs"]["commands"].replace("{posargs:{env_dir}/jobs.json}", str(path))
    python, *args = shlex.split(command)
    assert python == "python"
    subprocess.run([sys.executable, *args], check=True, cwd=ROOT)
    return json.loads(path.read_text())["include"]


def test_every_job_names_an_environment_of_tox(jobs: list[dict[str, Any]]) -> None:
    assert 0 < len(jobs) <= 256
    assert {job["tox"] for job in jobs} <= tox_environments()


@pytest.mark.slow
def test_the_shards_of_the_nightly_are_all_its_cells(jobs: list[dict[str, Any]]) -> None:
    def collected(args: list[str]) -> list[str]:
        command = [sys.executable, "-m", "pytest", *args, "--collect-only", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "::test_cell[" in line]

    parts = [collected(shlex.split(job["args"])) for job in jobs]
    whole = collected(["scenarios", "--suite", "nightly"])
    assert sorted(cell for part in parts for cell in part) == sorted(whole)
    assert all(parts)


def test_steps_name_environments_that_exist() -> None:
    text = "\n".join(
        step["run"]
        for name in ("pull-request", "nightly")
        for job in workflow(name)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    )
    named = [word for line in text.splitlines() if "tox run -e " in line for word in line.split("-e ")[1].split()[:1]]
    assert {env for group in named if "$" not in group for env in group.split(",")} <= tox_environments()
