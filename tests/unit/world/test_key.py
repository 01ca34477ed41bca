"""Addresses and keys of the external control channel."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.world import key


def test_the_key_file_is_made_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_KEY", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = key.key()
    assert key.key() == made
    assert len(made) == 32
    path = tmp_path / "collective-harness" / "key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["key"]
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others can read this key"):
        key.key()


@pytest.mark.parametrize("text", ["short", "xy" * 32, "ab" * 15])
def test_no_key(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_KEY", text)
    with pytest.raises(UsageError, match="at least 32 hexadecimal digits"):
        key.key()


def test_addresses() -> None:
    assert key.parse("10.0.0.1:29400") == ("10.0.0.1", 29400)
    for text in ("29400", ":29400", "host:", "host:x", "host:70000", "host:0"):
        with pytest.raises(UsageError, match="expected HOST:PORT"):
            key.parse(text)
