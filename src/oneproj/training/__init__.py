"""A run from start to answer: ``solve``, the loop, checkpoints, and diagnostics."""
