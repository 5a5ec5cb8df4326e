"""Projection onto convex constraints: keep the cuts, project onto their intersection.

A convex c_j lies above its linearisations, so at every visited point x_k

    ``c_j(x_k) + <grad c_j(x_k), x - x_k> <= 0``

holds for every feasible x: a cut, valid everywhere and for good. The nearest point of
the intersection of all cuts is at most as far away as the nearest feasible point. When
it is feasible, it *is* the nearest feasible point, whether or not c_j has kinks: cuts
from both sides of a kink are kept.
"""

from __future__ import annotations

from oneproj.parameters import difference
from oneproj.projection.bundle import Bundle
from oneproj.projection.view import View

STALLED = 3
"""Looks without progress after which rounding is in the way, and the margin grows."""
WIDER = 4.0
"""The factor by which it grows."""


def project_convex(
    view: View, *, capacity: int, max_evaluations: int
) -> tuple[Bundle, bool]:
    """Move the view's parameters to the nearest feasible point.

    Returns:
        The bundle, which has the multipliers and the lower bound, and whether its cuts
        prove that no point is feasible. The view knows the best point.
    """
    bundle, margins = Bundle(capacity), dict(view.margins)
    seen, least, waited = view.first, view.first.worst, 0
    while seen.worst > 0 and view.evaluations < max_evaluations:
        at = difference(view.parameters, view.origin)
        for name, gradient in seen.gradients.items():
            if seen.values[name] + margins[name] > 0:
                bundle.add(name, seen.values[name], gradient, at)
        if not bundle.solve(margins):
            return bundle, True
        seen = view.move(bundle.displacement(view.origin))
        waited = 0 if seen.worst < 0.9 * least else waited + 1
        least = min(least, seen.worst)
        if waited >= STALLED and least < WIDER * max(margins.values()):
            margins = {name: WIDER * margin for name, margin in margins.items()}
            waited = 0
    return bundle, False
