"""The one projection: from a point to the nearest feasible point.

``project`` chooses a projector for the constraints: ``closed_form`` for sets alone,
``cuts`` for everything else. A projector of your own is an ``AbstractProjector``,
passed as ``projector=``. The paper's two are in the package ``oneproj-paper``.

``cuts`` is two methods: ``convex/`` keeps every linearisation, ``sqp.py`` makes a
model from those at the current point. Both evaluate the constraints through
``evaluator``, which counts gradients and keeps the best point, and describe the answer
with ``remarks``. Below them are ``sets/``, whose nearest points are known, and
``vectors/``, arithmetic for parameters of any size.
"""

from oneproj.projection.base import AbstractProjector as AbstractProjector
