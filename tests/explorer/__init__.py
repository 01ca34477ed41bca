"""An exhaustive explorer of small programs and a generator of random ones: the oracle of the progress models."""
