"""The experiments, theorems and figures of the paper, made again with ``oneproj``."""
