"""The nearest point of the closed-form sets, where it meets the functions as well."""

from __future__ import annotations

import math

from oneproj.projection.balance import imbalance, relative
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.remarks import described
from oneproj.results import Projection
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import distance


def project_onto_sets(evaluator: Evaluator, region: Region) -> Projection | None:
    """Move to the nearest point of the region if it satisfies every constraint.

    Then no feasible point is nearer, whatever the functions are: the feasible points
    are a subset of the region, so the distance to the region is a lower bound on the
    distance to any of them, and this point attains it. The region need not be convex.

    Costs one evaluation without gradients, and none if the start lies in the region.

    Args:
        evaluator: At the start, where a constraint is violated.
        region: Sets among the constraints, at most one for each tensor.

    Returns:
        The answer, with the distance to the exact sets as its lower bound; None, with
        the evaluator at the start, if the point violates a constraint.

    Example:
        >>> import torch, oneproj
        >>> from oneproj.sets.region import region_of
        >>> w = torch.tensor([-2.0, -2.0], dtype=torch.float64, requires_grad=True)
        >>> both = {
        ...     "box": oneproj.sets.Box(lower=0.0).on(w),
        ...     "curve": oneproj.function(lambda: w[1] - (1 - w[0]) ** 3) <= 0,
        ... }
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> found = project_onto_sets(evaluator, region_of([w], both))
        >>> found.distance == found.lower_bound == 8**0.5, found.multipliers["curve"]
        (True, 0.0)
    """
    outside = [name for name in region.places if evaluator.first.values[name] > 0]
    if not outside:
        return None
    inside = region.member(evaluator.origin, like=evaluator.origin)
    exact, nearest = region.parts(evaluator.origin), list(evaluator.origin)
    for name in outside:
        nearest[region.places[name]] = inside[region.places[name]]
    if not evaluator.try_point(nearest):
        return None
    multipliers, distances = {}, []
    for name in outside:
        i = region.places[name]
        distances.append(distance([exact[name]], [evaluator.origin[i].double()]))
        multipliers[name] = distance(
            [nearest[i].double()], [evaluator.origin[i].double()]
        )
    # The normals are those at the start: at a corner no other one balances the move.
    normals = {name: evaluator.first.gradients[name] for name in outside}
    far = evaluator.moved()
    return described(
        evaluator,
        evaluator.best,
        far,
        multipliers=multipliers,
        kkt_residual=relative(imbalance(evaluator, multipliers, normals), far),
        lower_bound=min(far, math.hypot(*distances)),
    )
