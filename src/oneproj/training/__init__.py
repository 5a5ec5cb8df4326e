"""A run from start to answer: ``solve``, the loop and checkpoints."""
