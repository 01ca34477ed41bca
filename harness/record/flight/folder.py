"""A folder of dumps: which file is which rank, and every file read, one after the other, into compact tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.model.fast import AVAILABLE
from harness.record.flight.table import SMALL, Table, read_bytes, read_content, table_of

if TYPE_CHECKING:
    from harness.record.flight.scanner import Scanner

_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(\.(json|pkl|pickle|pt|bin|dump|trace))?", re.IGNORECASE)


@dataclass(frozen=True)
class Dumps:
    """The dumps of a job: ``tables[rank]``, and the folder they came from."""

    folder: str
    tables: dict[int, Table]


def files(folder: Path) -> dict[int, Path]:
    """The dump of each rank: files named ``<any prefix><rank>``, perhaps with an ending such as ``.json``.

    Raises InputError where there are none, or two files claim one rank.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or path.name.startswith(".") or not path.is_file():
            continue
        rank = int(match["rank"])
        if rank in found:
            raise InputError(
                f"{found[rank].name} and {path.name} both name rank {rank}; one file a rank is accepted",
                file=folder,
            )
        found[rank] = path
    if not found:
        raise InputError("no dumps: files named <prefix><rank>, one a rank, are expected", file=folder)
    return found


def is_folder_of_dumps(folder: Path) -> bool:
    """Whether some file's name ends in a rank."""
    return any(_NAME.fullmatch(path.name) and path.is_file() for path in folder.iterdir())


def load(folder: Path) -> Dumps:
    """Read every dump. Raises InputError, naming the file, for one that cannot be used."""
    paths = files(folder)
    large = sum(path.stat().st_size for path in paths.values()) >= SMALL
    tables = {}
    for rank, path in sorted(paths.items()):
        data = read_bytes(path)
        table = _scanner().table(data, str(path)) if AVAILABLE and large and data[:1] == b"\x80" else None
        tables[rank] = table or table_of(read_content(data, str(path)), str(path))
    return Dumps(str(folder), tables)


def frames(path: Path, entry: int) -> Any:
    """The frames of one entry of a dump that was read before: a list of mappings, or something else, or None."""
    data = read_bytes(path)
    if AVAILABLE and len(data) >= SMALL // 64 and data[:1] == b"\x80":
        found = _scanner().frames(data, [entry])
        if found is not None:
            return found[0]
    return (read_content(data, str(path)).get("entries") or [])[entry].get("frames")


@cache
def _scanner() -> Scanner:
    from harness.record.flight.scanner import Scanner

    return Scanner()
