"""The explorer itself against what the published programs must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from .explore import order, outcomes
from .reading import read

CORPUS = sorted((Path(__file__).parents[2] / "scenarios" / "public").glob("*.yaml"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    source = read(path.read_text())
    assert {model: outcomes(source, model) for model in source.expect} == source.expect
    assert source.order is not None
    assert order(source) == source.order
