"""Other projects' ways to run a test on several ranks, each with the same trivial body, as pytest runs them.

Nothing is imported here: ranks import what is below, and their start is measured.
"""
