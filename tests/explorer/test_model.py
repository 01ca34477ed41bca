"""The product's model against the explorer: same outcome sets, same order verdicts, on random programs.

10 000 programs in a pull request, each under a third of the models, and every model nightly. A program where
the two differ is printed whole, to be pasted into a file and looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.model import early, execution, proof
from harness.model import outcomes as search
from harness.model.order import order_of
from harness.model.outcomes import judge
from harness.model.program import Program
from harness.model.progress import Progress

from . import explore
from .generate import program
from .reading import read

CHUNK = 1250
CHUNKS = 8
NIGHTLY_FROM = 1_000_000
#: With sends as a rendezvous, so that an engine may let them go early or not.
EARLY = ["independent", "lane", "host_blocking", "first_use", "lanes:2", "lane+buffered"]


def differences(seed: int, models: list[str]) -> Iterator[str]:
    """What the explorer and the model disagree about in one program."""
    text = program(seed)
    source, ours = read(text), Program.parse(text)
    known: dict[str, set[str]] = {}
    for model in models:
        simpler = _simplest(source, model)
        if simpler not in known:
            known[simpler] = explore.outcomes(source, simpler)
        found = set(judge(ours, model).outcomes)
        if found != known[simpler]:
            yield f"seed {seed}, {model}: explorer {known[simpler]}, model {found}\n{text}"
    expected, got = explore.order(source), order_of(ours.histories()).verdict
    if expected != got:
        yield f"seed {seed}, order: explorer {expected}, model {got}\n{text}"


def _simplest(source: Any, model: str) -> str:
    """The first model that is the same by its very words: no queue is full, or nothing is sent."""
    calls = [[c for s in statements for c in s.calls] for rank in source.threads for statements in rank]
    name, _, p2p = model.partition("+")
    most = max((sum(len(s.calls) for t in rank for s in t) for rank in source.threads), default=0)
    if name.startswith("lanes:") and int(name[6:]) >= most:
        name = "independent"
    sends = any(c.part[0] == "send" for row in calls for c in row)
    return f"{name}+{p2p}" if p2p and sends else name


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        found = list(differences(seed, explore.MODELS[seed % 3 :: 3]))
        assert not found, found[0]


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(4 * CHUNKS))
def test_random_programs_nightly(chunk: int) -> None:
    first = NIGHTLY_FROM + chunk * CHUNK
    for seed in range(first, first + CHUNK):
        found = list(differences(seed, explore.MODELS))
        assert not found, found[0]


def early_differences(seed: int) -> Iterator[str]:
    """What the two disagree about for engines that let ranks go early."""
    text = program(seed)
    source, ours = read(text), Program.parse(text)
    for model in EARLY[seed % 3 :: 3]:
        known, found = explore.outcomes(source, model, early=True), set(search.outcomes(ours, model, early=True))
        if found != known:
            yield f"seed {seed}, {model}, early: explorer {known}, model {found}\n{text}"


@pytest.mark.slow
def test_engines_that_let_ranks_go_early() -> None:
    """One program of fourteen has more outcomes then, under a lane: about 90 of 1250."""
    more = 0
    for seed in range(CHUNK):
        found = list(early_differences(seed))
        assert not found, found[0]
        ours = Program.parse(program(seed))
        more += search.outcomes(ours, "lane", early=True) != search.outcomes(ours, "lane")
    assert more > CHUNK / 25


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engines_that_let_ranks_go_early_nightly(chunk: int) -> None:
    first = NIGHTLY_FROM + chunk * CHUNK
    for seed in range(first, first + CHUNK):
        found = list(early_differences(seed))
        assert not found, found[0]


def test_every_outcome_is_common() -> None:
    """Each outcome, and each order verdict, in at least one program of thirty; else the comparison says little."""
    seen: Counter[str] = Counter()
    count = 300
    for seed in range(count):
        source = read(program(seed))
        seen.update(explore.outcomes(source, "lane") | {explore.order(source)})
    for word in ("completes", "deadlock", "missing", "mismatch", "silent_mix", "consistent", "cyclic"):
        assert seen[word] >= count / 30, (word, seen)


def test_same_seed_same_program() -> None:
    assert program(7) == program(7)
    assert len({program(seed) for seed in range(100)}) > 95


def _nothing(*_: Any) -> Iterator[Any]:
    return iter(())


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a part not issued is nobody's fault": lambda m: m.setattr(proof._Waits, "_threads", _nothing),
    "a queued part waits for nothing": lambda m: m.setattr(execution.Progress, "_start", _start_all),
    "calls that differ agree": lambda m: m.setattr("harness.model.progress.differ", lambda left, right: False),
    "a first use blocks nobody": lambda m: m.setattr(Progress, "_use", lambda *a: None),
    "threads never race": lambda m: m.setattr(search._Search, "_commutes", lambda *a: True),
    "labels never differ": lambda m: m.setattr("harness.model.progress.Instance.mixed", False),
}


EARLY_BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "nobody may go early": lambda m: m.setattr(search, "may_finish", lambda part: False),
    "everybody may": lambda m: m.setattr(search, "may_finish", lambda part: True),
    "who receives from a root needs it not": lambda m: m.setattr(early, "_FROM_ROOT", ()),
    "who gives to a root needs it": lambda m: m.setattr(early, "_TO_ROOT", ()),
    "what nobody waits for stays": lambda m: m.setattr(search._Search, "_finish_rest", _nothing),
    "one is let go, no matter which": lambda m: m.setattr(search._Search, "_finishes", _first_finish),
}


def _first_finish(self: Any, running: Any) -> Any:
    """Only one of the parts that may go does."""
    return [("finish", part.rank, part.seq) for part in search._early(running, awaited=True)][:1]


def _start_all(self: Any, parts: list[Any]) -> None:
    """Leaves queued parts where they are for ever."""
    for part in parts:
        part.started = True
        part.instance.started += 1


@pytest.mark.slow
@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_model_is_noticed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 programs are enough to see any of these."""
    BREAKS[how](monkeypatch)
    for seed in range(400):
        try:
            if any(differences(seed, ["lane", "first_use"])):
                return
        except (AssertionError, ValueError, KeyError, StopIteration):
            return  # a broken machine may as well fall over
    pytest.fail("not noticed")


@pytest.mark.slow
@pytest.mark.parametrize("how", EARLY_BREAKS)
def test_a_broken_rule_of_going_early_is_noticed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    EARLY_BREAKS[how](monkeypatch)
    assert any(any(early_differences(seed)) for seed in range(1250))
