"""The one projection: from a point to the nearest feasible point.

``project`` chooses a projector for the constraints: ``ClosedForm`` for sets alone,
``Cuts`` for everything else. A projector of your own is an ``AbstractProjector``,
passed as ``projector=``. The paper's two are in the package ``oneproj-paper``.

``cuts.py`` has two methods: ``convex.py`` keeps every linearisation, ``sqp.py`` makes
a model from those at the current point. Both evaluate the constraints through
``evaluator.py``, which counts gradients and keeps the best point, and describe the
answer with ``report.py``. Below them are ``sets/``, whose nearest points are known, and
``vectors/``, arithmetic for parameters of any size.
"""

from oneproj.projection.base import AbstractProjector as AbstractProjector
from oneproj.projection.closed_form import ClosedForm as ClosedForm
from oneproj.projection.cuts import Cuts as Cuts
from oneproj.projection.report import plot_history as plot_history
