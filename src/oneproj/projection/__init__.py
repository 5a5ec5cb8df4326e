"""The one projection: from a point to the nearest feasible point.

``project`` chooses a projector for the constraints, an ``AbstractProjector``
(``base``): ``closed_form`` or ``cuts``. The second sees the constraints through a
``view``, which counts and remembers the best point, and describes its answer by
``remarks``. The paper's two projectors are in the package ``oneproj-paper``.

``cuts``, the default for functions, is two methods: ``convex/`` keeps every
linearisation, ``nonconvex/`` makes a model of those at the present point. Below them
are ``sets/``, whose projections are known, and ``vectors/``, arithmetic for parameters
of any size.
"""
