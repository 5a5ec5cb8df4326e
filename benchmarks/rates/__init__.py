"""Bounds on rates through ``solve``: ``python -m benchmarks.rates``."""
