"""Benchmarks: what a step costs, measured side by side with what it is held against."""
