"""Convex constraints: cuts stay valid, and the answer is the nearest point.

``cutting`` searches over the cuts of a ``bundle``, which are ``kept_cuts`` and what
they prove by ``weak_duality``, and ``within`` over those of functions in closed-form
sets, by ``region_dual``. Both allow for the ``bend`` of the constraints, long searches
for all that they ``curved`` so far, in a ``basis`` of the gradients, and refuse a
declared curvature on the evidence of ``refutation``.
"""
