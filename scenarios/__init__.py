"""What is reproduced: one package a subject (see `harness.scenario`), and the suite that runs them all."""
