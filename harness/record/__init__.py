"""What is recorded: in ranks (`recorder`), on disk (`evidence`), and what follows from it (`verdict`).

`current` is this rank's recorder; `label` and `unrecorded` are what bodies use.
"""

from __future__ import annotations

from harness.record.recorder import Recorder
from harness.record.this_rank import current, install, label, unrecorded

__all__ = ["Recorder", "current", "install", "label", "unrecorded"]
