"""Accelerators and their drivers, as the kernel shows them: nothing is opened, and no vendor's package is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_INTEL = "0x8086"
#: Kernel drivers of Intel's accelerators; a host's own display adapter has them too.
_INTEL_DRIVERS = ("xe", "i915")


@dataclass(frozen=True)
class Devices:
    """The accelerators of one vendor: their names, one each, and the driver's version."""

    kind: str
    names: tuple[str, ...]
    driver: str

    def __str__(self) -> str:
        counted = {name: self.names.count(name) for name in self.names}
        return ", ".join(f"{n} x {name}" for name, n in counted.items()) + f" (driver {self.driver})"


def devices(root: Path = Path("/")) -> list[Devices]:
    """What this machine has, NVIDIA's first; ``root`` is where ``proc`` and ``sys`` are looked for."""
    return [found for found in (_nvidia(root), _intel(root)) if found is not None]


def _nvidia(root: Path) -> Devices | None:
    names = []
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        model = [line for line in _lines(path) if line.startswith("Model:")]
        names.append(model[0].partition(":")[2].strip() if model else "unknown model")
    if not names:
        return None
    version = next(iter(_lines(root / "proc/driver/nvidia/version")), "")
    words = [word for word in version.split() if word[:1].isdigit() and "." in word]
    return Devices("cuda", tuple(names), words[0] if words else "unknown")


def _intel(root: Path) -> Devices | None:
    names, driver = [], ""
    for card in sorted(root.glob("sys/class/drm/renderD*/device")):
        found = (card / "driver").resolve().name
        if _text(card / "vendor") == _INTEL and found in _INTEL_DRIVERS:
            names.append(f"Intel {_text(card / 'device')}")
            driver = found
    if not names:
        return None
    version = _text(root / "sys/module" / driver / "version") or "of the kernel"
    return Devices("xpu", tuple(names), f"{driver} {version}")


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
