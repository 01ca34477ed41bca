"""The command line: help, exit codes, and what needs no ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]


def harness(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), catch_exceptions=False)


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = harness(name, "--help")
    assert result.exit_code == 0
    assert f"harness {name}" in result.output.split("Options:")[0].split("Usage:")[1].split("\n", 1)[1]


def test_help_imports_no_command() -> None:
    code = (
        "import sys, harness.cli\n"
        "try:\n"
        "    harness.cli.main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'torch', 'deepspeed', 'pytest', 'pydantic', 'rich'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.strip() == "heavy: []"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["replay", "a/b"], "expected SCENARIO/BACKEND/WORLD/TOPOLOGY/ARRIVAL/VARIANT"),
        (["replay", "none/lane/2/mirror/same/installed"], "scenario: scenario 'none' is unknown"),
        (["replay", "deepspeed_zero3_group_order/lane/3/dp_edp/same/installed"], "accepted: 4, 6, 8"),
        (["matrix", "--suite", "none"], "there is no suite 'none'; accepted: pr"),
        (["matrix", "--matrix", "none.yaml"], "none.yaml: cannot be read"),
        (["report", "nowhere"], "nowhere: holds no evidence"),
    ],
)
def test_wrong_use_ends_with_2_and_a_message(args: list[str], message: str) -> None:
    result = harness(*args)
    assert result.exit_code == 2
    assert message in result.output


def test_the_matrix_is_listed() -> None:
    assert "pr" in harness("matrix").output
    listed = json.loads(harness("matrix", "--suite", "pr", "--format", "json").output)["pr"]
    assert {cell["cell"]["backend"] for cell in listed} == {"gloo", "lane"}
    shown = harness("matrix", "--suite", "pr").output.splitlines()
    assert len(shown) == len(listed)
    assert shown[0].startswith(listed[0]["token"])
