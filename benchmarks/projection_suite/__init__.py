"""``python -m benchmarks.projection_suite``: what projections cost, family by family.

``cases`` says what an instance is, ``hock_schittkowski``, ``convex``, ``with_sets`` and
``networks`` build them, ``reference`` finds the best distance known, and ``table`` sums
a record up.
"""
