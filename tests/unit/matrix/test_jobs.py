"""Suites as jobs of a CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError, UsageError
from harness.matrix.jobs import jobs
from harness.matrix.plan import Matrix, load_matrix

TEXT = """\
matrix: 1
suites:
  night:
    about: two machines
    cells:
      - {scenario: z, backend: [gloo, "lanes:2", nccl], world: 2, topology: mirror, arrival: same, variant: installed}
    machines:
      cpu: {runs_on: ubuntu-latest, backend: [gloo, "lanes:2"], tox: nightly, shards: 2}
      gpu: {runs_on: [self-hosted, cuda], backend: nccl, tox: lab-cuda}
expectations:
  - expect: completes
"""


def matrix(tmp_path: Path, text: str = TEXT) -> Matrix:
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    return load_matrix(path)


def test_a_machine_is_a_job_per_shard(tmp_path: Path) -> None:
    found = jobs(matrix(tmp_path), ["night"])
    assert [job["name"] for job in found] == ["night cpu 1/2", "night cpu 2/2", "night gpu"]
    assert found[1]["args"] == "scenarios --suite night --strict --backend gloo,lanes:2 --shard 2/2"
    assert found[2] == {
        "name": "night gpu",
        "slug": "night-gpu-1",
        "runs_on": ["self-hosted", "cuda"],
        "tox": "lab-cuda",
        "args": "scenarios --suite night --strict --backend nccl",
    }


def test_more_jobs_than_a_ci_starts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="257 jobs; accepted: up to 256"):
        jobs(matrix(tmp_path, TEXT.replace("shards: 2", "shards: 256")), ["night"])


@pytest.mark.parametrize(
    ("backend", "what"),
    [("[gloo]", "backend lanes:2 is served by none"), ('"*"', "backend nccl is served by cpu, gpu")],
)
def test_every_backend_runs_on_exactly_one_machine(tmp_path: Path, backend: str, what: str) -> None:
    with pytest.raises(InputError, match=rf"matrix.yaml:7: suites.night.machines: {what}; accepted: by exactly one"):
        matrix(tmp_path, TEXT.replace('backend: [gloo, "lanes:2"], tox', f"backend: {backend}, tox"))


def test_a_suite_without_machines_has_no_jobs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="suite night names no machines"):
        jobs(matrix(tmp_path, TEXT[: TEXT.index("    machines")] + TEXT[TEXT.index("expectations") :]), ["night"])
