"""``python -m benchmarks.projection``: how good are projections, and what do they cost?

``cases`` says what a problem is; ``hock_schittkowski``, ``convex``, ``with_sets`` and
``networks`` build them, and ``suite`` is all of them. ``reference`` finds the best
distance known, ``peers`` are other solvers, ``record`` runs and keeps. ``table``,
``profile``, ``page`` and ``compare`` read a record; ``ablate`` and ``switches`` turn
mechanisms off; ``scale`` measures time and memory on the models of ``large``.
"""
