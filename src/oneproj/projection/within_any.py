"""Projection within closed-form sets that are not convex, such as matrices of a rank.

The dual of ``within_sets.py`` needs only the nearest point of the sets, which is known
in closed form whether or not they are convex. What is lost without convexity is that
its maximum is the distance; where it is all the same, the answer is the nearest point.
"""

from __future__ import annotations

import math
from contextlib import suppress

from oneproj.errors import InvalidProblemError
from oneproj.projection.balance import apart, imbalance, relative
from oneproj.projection.convex import project_convex
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.remarks import described
from oneproj.projection.within_sets import SetBundle
from oneproj.results import Projection
from oneproj.sets.region import Region

TRIED = 50
"""Full gradients for it: most answers take ten."""
NARROW, EVEN = 1e-3, 1e-2
"""The duality gap and the KKT residual, as shares of the distance, up to which its
answer is taken for the nearest one."""


def project_within_any(
    evaluator: Evaluator, region: Region, *, capacity: int, max_evaluations: int = TRIED
) -> tuple[Projection | None, bool]:
    """Move to a feasible point of the region; whether it is surely the nearest one.

    It is if the duality gap is narrow, and the functions are declared convex or their
    gradients balance the displacement. None if no feasible point was found.

    Example:
        >>> import torch, oneproj
        >>> from oneproj.sets.region import region_of
        >>> w = torch.diag(torch.tensor([3.0, 2.0])).double().requires_grad_()
        >>> both = {
        ...     "rank": oneproj.sets.Rank(1).on(w),
        ...     "trace": oneproj.function(lambda: w.trace(), curvature="linear") <= 1.0,
        ... }
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> region = region_of([w], both)
        >>> found, sure = project_within_any(evaluator, region, capacity=10)
        >>> round(found.distance, 6), sure  # to (1, 0)
        (2.828427, True)
    """
    few = min(TRIED, max_evaluations)
    bundle = SetBundle(region, evaluator.origin, capacity)
    # What was not declared is nobody's mistake.
    with suppress(InvalidProblemError):
        project_convex(evaluator, bundle, max_evaluations=few)
    if evaluator.best.worst > 0:
        return None, False
    far, mu = evaluator.moved(), bundle.multipliers()
    uneven = imbalance(evaluator, mu, bundle.unit_normals())
    functions = evaluator.constraints.keys() - region.places.keys()
    declared = all(evaluator.constraints[name].curvature for name in functions)
    bound = bundle.lagrangian_bound()
    narrow = far - bound <= NARROW * far
    sure = narrow and (declared or uneven <= EVEN * far)
    left = uneven
    if narrow and declared:  # at a kink, one of its gradients does not balance
        gap = math.sqrt(max(0.0, far**2 - bound**2))
        left = min(uneven, max(apart(evaluator, bundle)[0], gap))
    kkt_residual = relative(left, far)
    found = described(
        evaluator, evaluator.best, far, multipliers=mu, kkt_residual=kkt_residual
    )
    return found, sure
