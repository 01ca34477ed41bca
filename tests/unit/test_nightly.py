"""The nightly's last job, run here: the commands of its tox environments, on evidence of two shards."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .report.evidence import INVERSION, write
from .report.some import AS_EXPECTED, UNEXPECTED

ROOT = Path(__file__).parents[2]


def run(environment: str, folder: Path, *arguments: str) -> None:
    """The commands of a tox environment, with ``arguments`` after its ``--``, in ``folder``."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    for line in filter(None, parser[f"testenv:{environment}"]["commands"].splitlines()):
        ignored = line.startswith("- ")
        text = line.removeprefix("- ").replace("{work_dir}", str(folder / ".tox"))
        python, *words = shlex.split(text.replace("{posargs}", shlex.join(arguments)))
        assert python == "python"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_SHA": "0123456789abcdef"}
        done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
        assert ignored or done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_last_job_joins_shards_and_keeps_their_results(tmp_path: Path) -> None:
    (tmp_path / ".tox").mkdir()
    write(tmp_path / "one", INVERSION, "lane", AS_EXPECTED)
    write(tmp_path / "two", INVERSION, "lane", UNEXPECTED)
    run("summary", tmp_path, "one", "two")
    summary = (tmp_path / ".tox" / "summary.md").read_text()
    assert "2 cells: 1 as expected, 1 unexpected" in summary
    assert "```text" in summary, "the picture of what was unexpected"
    assert UNEXPECTED.cell.id in (tmp_path / ".tox" / "report.html").read_text()
    for night in ("1", "2"):
        run("history", tmp_path, "--run", night, "one", "two")
    text = (tmp_path / ".tox" / "history.txt").read_text()
    assert text.startswith("2 runs")
    assert "flakes (one commit and versions, several outcomes): none" in text


def test_what_the_last_job_reads_is_what_the_environments_write() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]["summary"]["steps"]
    text = "\n".join(step.get("run", "") for step in steps)
    for path in (".tox/summary.md", ".tox/history.txt"):
        assert f"cat {path}" in text
    named = {step["with"]["path"] for step in steps if "path" in step.get("with", {})}
    assert {".harness", "history.jsonl", ".tox/report.html"} == named
