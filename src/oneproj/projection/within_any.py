"""Projection within closed-form sets that are not convex, such as matrices of a rank.

The dual of ``within_sets.py`` needs only the nearest point of the sets, which is known
in closed form whether or not they are convex. What is lost without convexity is that
its maximum is the distance; where it is all the same, the answer is the nearest point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from oneproj.errors import InvalidProblemError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.convex import project_convex
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.local_model import random_direction
from oneproj.projection.report import apart, described, imbalance, relative
from oneproj.projection.within_sets import SetBundle
from oneproj.results import Projection
from oneproj.sets import SetConstraint
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    dimension,
    dot,
    norm,
)

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


def seems_linear_within_sets(evaluator: Evaluator) -> bool:
    """Whether there are sets, and all else is convex or equals its linearisation.

    That is compared at two random points, the same every time, where only values are
    taken, of what is not declared to be convex: together they count as one evaluation.
    The parameters hold the start before and after.

    Example:
        >>> import torch
        >>> from oneproj.sets import Simplex
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([0.2, 0.8, 0.0], requires_grad=True)
        >>> stated = {"simplex": Simplex(1.0).on(w), "first": function(lambda: w[0])}
        >>> evaluator = Evaluator([w], stated, differentiate_all=True)
        >>> seems_linear_within_sets(evaluator)
        True
    """
    constraints = evaluator.constraints
    unknown = {n: c for n, c in constraints.items() if c.curvature is None}
    sets = {n for n, c in constraints.items() if isinstance(c, SetConstraint)}
    shapes = {c.curvature for c in constraints.values()} - {None}
    if not sets or sets & set(unknown) or not shapes <= {"convex", "linear"}:
        return False
    evaluator.evaluations += 1
    length = norm(evaluator.origin) or math.sqrt(dimension(evaluator.origin))
    move = random_direction(evaluator.origin, length)
    moves = (move, [-part for part in move])
    return all(_is_linear_along(evaluator, unknown, move) for move in moves)


def _is_linear_along(
    evaluator: Evaluator, constraints: Mapping[str, AbstractTerm], move: Vector
) -> bool:
    """Compare values at the start plus a move with linearisations at the start."""
    assign(evaluator.parameters, combine([1.0, 1.0], [evaluator.origin, move]))
    values = evaluator.values_here(constraints)
    evaluator.return_to_best()
    if values is None:
        return False
    for name, value in values.items():
        slope = evaluator.first.gradients[name]
        rounding = evaluator.margins[name] + evaluator.share * norm(slope) * norm(move)
        if abs(evaluator.first.values[name] + dot(slope, move) - value) > rounding:
            return False
    return True
