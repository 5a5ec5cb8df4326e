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
from oneproj.projection.view import Look, View

STALLED = 3
"""Looks without progress after which rounding is in the way, and the margin grows."""
WIDER = 4.0
"""The factor by which it grows."""


def project_convex(
    view: View, *, capacity: int, max_evaluations: int
) -> tuple[Bundle, bool]:
    """Move the view's parameters to the nearest feasible point.

    After ``max_evaluations`` the margins grow with what is still violated: exactness is
    given up for feasibility.

    Returns:
        The bundle, which has the multipliers and the lower bound, and whether its cuts
        prove that no point is feasible. The view knows the best point.
    """
    bundle, margins = Bundle(capacity), dict(view.margins)
    seen, least, waited = view.first, view.first.worst, 0
    while seen.worst > 0 and view.evaluations < 2 * max_evaluations:
        _add_cuts(bundle, view, seen, margins)
        if not bundle.solve(margins):
            # A set without interior has no point inside by a margin, yet has points.
            margins = dict.fromkeys(margins, 0.0)
            if not bundle.solve(margins):
                return bundle, bundle.contradicts
        seen = view.move(bundle.displacement(view.origin))
        waited = 0 if seen.worst < 0.9 * least else waited + 1
        least = min(least, seen.worst)
        if waited >= STALLED and least < WIDER * max(margins.values()):
            margins = {name: WIDER * margin for name, margin in margins.items()}
            waited = 0
        if view.evaluations >= max_evaluations:
            margins = {
                name: margin + max(0.0, seen.values[name])
                for name, margin in margins.items()
            }
    if seen.worst <= 0:
        # The gradients at the answer are known, and know its multipliers best.
        _add_cuts(bundle, view, seen, margins)
        bundle.solve(margins)
    return bundle, False


def _add_cuts(
    bundle: Bundle, view: View, seen: Look, margins: dict[str, float]
) -> None:
    """Linearise here what is violated, or nearly."""
    at = difference(view.parameters, view.origin)
    tight = [name for name in seen.gradients if seen.values[name] + margins[name] > 0]
    bundle.reserve(len(tight))
    for name in tight:
        bundle.add(name, seen.values[name], seen.gradients[name], at)
