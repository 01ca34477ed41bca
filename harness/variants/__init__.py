"""With and without a fix, on whatever release is installed, editing nothing on disk.

A `Fix` is one known bug's repair: its three variants are context managers that a rank enters before the body of a
scenario runs. ``installed`` is the release as it is, ``with_fix`` and ``without_fix`` behave as the code does with
and without the repair, whether or not the release has it. `harness.errors.VariantError` says what of the release's
internals a variant looked for and didn't find.
"""

from harness.variants.base import VARIANTS, Fix, Variant, fix, register

__all__ = ["VARIANTS", "Fix", "Variant", "fix", "register"]
