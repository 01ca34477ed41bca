"""Where the supervisor of launched ranks listens, and the key by which both sides know each other."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from harness.errors import UsageError

Address = tuple[str, int]
#: Loopback, unless told otherwise.
DEFAULT = "127.0.0.1:29411"


def parse(text: str) -> Address:
    """``host:port`` as an address. Raises UsageError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"address {text!r}: expected HOST:PORT, as in {DEFAULT}")
    return host, int(port)


def key() -> bytes:
    """``HARNESS_KEY`` (hexadecimal), else the user's own key file, made if need be.

    The file serves where all processes share a home directory, or a machine; elsewhere set the variable.
    Raises UsageError for a key that is too short to be one, or a key file that others can read.
    """
    text = os.environ.get("HARNESS_KEY", "")
    if text:
        return _decode(text, "HARNESS_KEY")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "collective-harness" / "key"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"key.{os.getpid()}")
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(secrets.token_hex(32))
    with contextlib.suppress(FileExistsError):
        os.link(fresh, path)  # whoever is first; the file is whole when it appears
    fresh.unlink()
    if path.stat().st_mode & 0o077:
        raise UsageError(f"{path}: others can read this key; remove the file, it is made anew")
    return _decode(path.read_text().strip(), str(path))


def _decode(text: str, source: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) < 16:
        raise UsageError(f"{source}: a key of at least 32 hexadecimal digits is expected")
    return found
