"""Looking at the slope of the worst constraint, point by point and downhill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
from torch import Tensor

from oneproj.certificates.combination import shortest_combination
from oneproj.certificates.flat import flat, unflat
from oneproj.certificates.points import doubled, outward, rounding_unit
from oneproj.certificates.simplex_qp import Array
from oneproj.parameters import Vector, assign, combine, norm, project_ball_
from oneproj.problem import Problem

REFINED_DIMENSION = 20
"""Beyond this a derivative-free search is no better than sampling."""
SEARCH_EVALUATIONS = 100
"""Of the search, per dimension plus one."""
BISECTIONS = 40
BOUNDARY_PAIRS = 16
SURFACE_ROUNDINGS = 64.0
"""A point this many roundings from the radius was meant to be on the surface."""


@dataclass(frozen=True)
class Sight:
    """One point of the ball: the worst residual there and its slope."""

    point: list[Tensor]
    residual: float
    slope: float
    """``dist(0, grad g + N_B)`` if the point is infeasible, else inf."""
    steepness: float
    """``|grad g|``, without the ball; 0 where it was not needed."""
    on_surface: bool
    evaluations: int = 1

    @property
    def infeasible(self) -> bool:
        """Whether the worst residual is > 0."""
        return self.residual > 0


def look(problem: Problem, point: Vector, *, anyway: bool = False) -> Sight:
    """Look at a point of the ball; the caller restores the parameters.

    Feasible points cost no gradient unless ``anyway``.
    """
    z, eps = problem.parameters, rounding_unit(problem.parameters)
    y = doubled(point)
    project_ball_(y, problem.radius, problem.center)
    assign(z, y)
    residuals = problem.residuals()
    worst = max(residuals.values())
    length, normal = outward(doubled(z), problem.center)
    surface = length >= problem.radius * (1.0 - SURFACE_ROUNDINGS * eps)
    if worst <= 0 and not anyway:
        return Sight(doubled(z), worst, math.inf, 0.0, surface)
    tie = SURFACE_ROUNDINGS * eps * max(abs(worst), 1.0)
    tied = [problem.constraints[n] for n, c in residuals.items() if c >= worst - tie]
    hull = [doubled(term.value_and_gradient(z)[1]) for term in tied]
    slope = shortest_combination(hull, [normal] if surface else []).norm
    return Sight(doubled(z), worst, slope, max(map(norm, hull)), surface)


def lowest_nearby(problem: Problem, start: Sight) -> Sight:
    """Follow the slope downhill from an infeasible point, without derivatives."""
    x = flat(start.point)
    if len(x) > REFINED_DIMENSION:
        return start
    best, count = start, 0

    def slope(v: Array) -> float:
        nonlocal best, count
        count += 1
        sight = look(problem, unflat(v, start.point))
        if not sight.infeasible:
            # Send the search back: the deeper inside, the worse.
            return start.slope + start.steepness - sight.residual
        best = sight if sight.slope < best.slope else best
        return sight.slope

    corners = np.vstack([x, x + 0.1 * problem.radius * np.eye(len(x))])
    scipy.optimize.minimize(
        slope,
        x,
        method="Nelder-Mead",
        options={
            "initial_simplex": corners,
            "maxfev": SEARCH_EVALUATIONS * (len(x) + 1),
            "xatol": 1e-10 * problem.radius,
            "fatol": 1e-10 * start.steepness,
        },
    )
    return replace(best, evaluations=count)


def boundary_slope(problem: Problem, seen: Sequence[Sight]) -> float | None:
    """The smallest ``|grad g|`` at points with g = 0, found by bisection."""
    outside = [sight.point for sight in seen if sight.infeasible]
    inside = [sight.point for sight in seen if not sight.infeasible]
    slopes = []
    for a, b in zip(outside[:BOUNDARY_PAIRS], inside[:BOUNDARY_PAIRS], strict=False):
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            t = 0.5 * (low + high)
            sight = look(problem, combine([1.0 - t, t], [a, b]))
            low, high = (t, high) if sight.infeasible else (low, t)
        edge = look(problem, combine([1.0 - high, high], [a, b]), anyway=True)
        slopes.append(edge.steepness)
    return min(slopes, default=None)
