"""Measurements of the harness beside its peers or limits, both in one run: ``python -m benchmarks NAME``.

Each module here has ``run()``, which gives rows as they are measured; a row is ``{"name", "value", "unit", "peer",
"ratio", "bar", "holds"}``: what was measured, the peer's value in the same unit (or None), the ratio of the two (or
None), what is demanded in words, and whether that holds.
"""
