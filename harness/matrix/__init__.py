"""``matrix.yaml``: which cells each suite runs, and which verdicts are expected of them."""
