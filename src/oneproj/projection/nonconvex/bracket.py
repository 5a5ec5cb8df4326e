"""Back from a feasible place that lies much too far away.

On a plateau a constraint is violated and hardly changes: its linearisation asks for a
step beyond all measure, and where that leads may be a plateau as well, a feasible one.
The models of ``local.py`` learn nothing on either. Values do: the start is infeasible,
the far place is not, so the boundary crosses the segment between them.
"""

from __future__ import annotations

import math

import numpy as np

from oneproj.projection.nonconvex.chart import Chart
from oneproj.projection.nonconvex.model import Place

WITHIN = 1.01
"""The ratio of a feasible length to an infeasible one that is close enough."""
LOOKS = 30
"""At most."""
NEARER = 0.9
"""The share of a way at which to look whether it is too long."""


def is_unaware(place: Place, share: float = 0.0) -> bool:
    """Whether the linearisation at a place thinks that a share of the way was enough.

    At a feasible place, where that share is known to be infeasible, a model made of it
    points in vain: there is a plateau, or another bend, in between.
    """
    c = np.minimum(place.c, 0.0)  # a feasible place has its margins to spare
    return bool((c - (1.0 - share) * (place.J @ place.d)).max() <= 0)


def can_be_nearer(chart: Chart, place: Place) -> bool:
    """Whether a tenth less of the way to a feasible place is feasible as well.

    Then the place is behind a plateau, or on one: no boundary is near it.
    """
    trial = chart.visit(NEARER * place.d)
    return trial is not None and trial.look.worst <= 0


def close_in(chart: Chart, place: Place, *, fully: bool = False) -> Place:
    """The end of a bisection from a feasible place towards the infeasible start.

    It is on logarithms of the length, since that may be wrong by many orders: about ten
    looks lead from anywhere to where the boundary is. It ends where the linearisation
    tells the two ends apart, unless it is to go ``fully`` to the boundary.
    """
    low, high, factor = 0.0, 1.0, 2.0
    for _ in range(LOOKS):
        if high <= WITHIN * low or not (fully or is_unaware(place, low / high)):
            break
        place = chart.refreshed(place)
        share = math.sqrt(low * high) if low > 0 else high / factor
        trial = chart.visit(share / high * place.d)
        if trial is not None and trial.look.worst <= 0:
            place, high = trial, share
        else:
            low = share
        factor *= factor
    return place
