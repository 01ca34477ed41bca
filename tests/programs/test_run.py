"""Programs run for real agree with the model: on models over gloo exactly, on gloo as far as it is free."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.model.program import Program
from harness.programs.run import Ran, mixed_results, run_program
from harness.programs.values import Code, mixture
from harness.world import pool
from tests.programs.agreement import agree

PUBLIC = Path(__file__).parents[2] / "scenarios" / "public"
MODELS = ["independent", "lane", "lanes:2", "host_blocking", "first_use", "lane+buffered"]
FEW, ALL = 25, 500


@pytest.fixture(scope="module", autouse=True)
def _worlds() -> Iterator[None]:
    yield
    pool.close_all()


@pytest.mark.slow
@pytest.mark.parametrize("backend", MODELS)
def test_random_programs_on_models(backend: str) -> None:
    seen = agree(backend, FEW)
    assert {"completes", "deadlock", "missing", "mismatch"} <= set(seen)


@pytest.mark.slow
def test_random_programs_on_gloo() -> None:
    agree("gloo", 12)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", [*MODELS, "gloo"])
def test_many_random_programs(backend: str) -> None:
    agree(backend, ALL, first=100_000)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["lane", "host_blocking"])
def test_the_public_corpus(backend: str) -> None:
    for path in sorted(PUBLIC.glob("*.yaml")):
        source = Program.load(path)
        ran = run_program(source, pool.get(source.world, backend), limit=20)
        assert ran.seen == ran.allowed, (path.stem, ran.verdict.explanation)


def run(name: str, backend: str = "gloo") -> tuple[Ran, Program]:
    source = Program.load(PUBLIC / f"{name}.yaml")
    return run_program(source, pool.get(source.world, backend), limit=20), source


def test_mixed_data_shows_itself_in_the_values() -> None:
    """The values alone say so, whatever was recorded."""
    text = (PUBLIC / "megatron-lm-2218-equal.yaml").read_text()
    source = Program.parse(text.replace(" value=100", "").replace(" value=1", ""))
    ran = run_program(source, pool.get(source.world, "gloo"), limit=20)
    assert ran.verdict.verdict == "silent_mix"
    mixed = mixed_results(ran, source)
    assert any("3 x bucket0 + 1 x bucket1" in one for one in mixed)
    assert mixed_results(*run("seed-fixed")) == []


def test_codes_are_told_apart() -> None:
    code = Code(("a", "b", "c"), 4)
    value = 2 * code.value("a", "float32") + 3 * code.value("c", "float32")  # type: ignore[operator]
    assert mixture(code, [float(value), 1.0]) == {"a": 3, "c": 3}
    assert mixture(code, [0.5, -1.0]) == {"?": 2}
    assert code.value("c", "int8") == 25
    assert Code(("a", "b", "c", "d"), 4).value("d", "int8") is None


def test_where_a_program_stands_is_a_line_of_it() -> None:
    ran, _ = run("seed", "lane")
    assert ran.verdict.certificate is not None
    where = {step.where[0][:2] for step in ran.verdict.certificate.cycle}
    assert where == {(str(PUBLIC / "seed.yaml"), 12), (str(PUBLIC / "seed.yaml"), 17)}


def test_the_command(tmp_path: Path) -> None:
    evidence = tmp_path / "seed.jsonl"
    words = ["run", str(PUBLIC / "seed.yaml"), "--backend", "lane", "--json", "--evidence", str(evidence)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["verdict"], report["order"], report["agrees"]) == ("deadlock", "cyclic", True)
    checked = CliRunner().invoke(main, ["check", "--json", str(evidence)])
    assert checked.exit_code == 1
    found = json.loads(checked.stdout)
    assert (found["verdict"], found["order"], found["kind"]) == ("deadlock", "cyclic", "evidence")
    assert found["models"]["independent"]["outcomes"] == ["completes"]
    assert found["models"]["lane"]["certificate"]["cycle"][0]["where"][0][0] == str(PUBLIC / "seed.yaml")


def test_unknown_backend() -> None:
    result = CliRunner().invoke(main, ["run", str(PUBLIC / "seed.yaml"), "--backend", "lame"])
    assert result.exit_code == 2
    assert "lame" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rccl-2191", "torchcomms-3095"])
def test_torchfrtrace_accepts_the_dumps(name: str, tmp_path: Path) -> None:
    words = ["run", str(PUBLIC / f"{name}.yaml"), "--backend", "gloo", "--record", str(tmp_path)]
    assert CliRunner().invoke(main, words).exit_code == 0
    script = "import sys; from torch.distributed.flight_recorder.fr_trace import main; main(sys.argv[1:])"
    traced = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert traced.returncode == 0, traced.stderr
    assert "rror" not in traced.stderr
    checked = CliRunner().invoke(main, ["check", str(tmp_path)])
    assert "0 recorded as incomplete" in checked.output
