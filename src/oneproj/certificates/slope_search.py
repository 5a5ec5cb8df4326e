"""Looking at the slope of the worst constraint, point by point and downhill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
from torch import Tensor

from oneproj.arrays import Array
from oneproj.certificates.combination import shortest_combination
from oneproj.certificates.points import doubled, outward
from oneproj.flat import flat, unflat
from oneproj.parameters import (
    Vector,
    assign,
    combine,
    norm,
    project_ball_,
    rounding_unit,
)
from oneproj.problem import Problem

REFINED_DIMENSION = 20
"""Beyond this a derivative-free search is no better than sampling."""
SEARCH_EVALUATIONS = 100
"""Of the search, per dimension plus one."""
BISECTIONS = 40
BOUNDARY_PAIRS = 8
NEAR_ROUNDINGS = 64.0
"""So many roundings from the radius, or from a tie, count as on it."""


@dataclass(frozen=True)
class Spot:
    """One point of the ball: the worst residual there and its slope."""

    point: list[Tensor]
    residual: float
    slope: float
    """``dist(0, grad g + N_B)``; inf at a feasible point, which the condition skips."""
    steepness: float
    """``|grad g|``, without the ball; 0 where no gradient was taken."""
    on_surface: bool

    @property
    def infeasible(self) -> bool:
        """Whether the worst residual is > 0."""
        return self.residual > 0


class Scout:
    """Looks around in the ball and counts; the caller restores the parameters."""

    def __init__(self, problem: Problem) -> None:
        """Look at this problem's constraints."""
        self._problem = problem
        self._eps = rounding_unit(problem.parameters)
        self.passes = 0
        self.gradients = 0

    def look(self, point: Vector, *, always: bool = False) -> Spot:
        """Look at a point, moved into the ball; gradients only where infeasible."""
        problem, z, y = self._problem, self._problem.parameters, doubled(point)
        project_ball_(y, problem.radius, problem.center)
        assign(z, y)
        y = doubled(z)
        residuals = problem.residuals()
        self.passes += len(residuals)
        worst = max(residuals.values())
        length, normal = outward(y, problem.center)
        surface = length >= problem.radius * (1.0 - NEAR_ROUNDINGS * self._eps)
        if worst <= 0 and not always:
            return Spot(y, worst, math.inf, 0.0, surface)
        tie = NEAR_ROUNDINGS * self._eps * max(abs(worst), 1.0)
        terms = [
            problem.constraints[n] for n, c in residuals.items() if c >= worst - tie
        ]
        hull = [term.value_and_gradient(z)[1] for term in terms]
        self.gradients += len(hull)
        slope = shortest_combination(hull, [normal] if surface else []).norm
        return Spot(y, worst, slope, max(map(norm, hull)), surface)

    def lowest_nearby(self, start: Spot) -> Spot:
        """Follow the slope downhill from an infeasible point, without derivatives."""
        x, best = flat(start.point), start
        if len(x) > REFINED_DIMENSION:
            return start

        def slope(v: Array) -> float:
            nonlocal best
            spot = self.look(unflat(v, start.point))
            if not spot.infeasible:
                # Send the search back: the deeper inside, the worse.
                return start.slope + start.steepness - spot.residual
            best = spot if spot.slope < best.slope else best
            return spot.slope

        R = self._problem.radius
        scipy.optimize.minimize(
            slope,
            x,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.vstack([x, x + 0.1 * R * np.eye(len(x))]),
                "maxfev": SEARCH_EVALUATIONS * (len(x) + 1),
                "xatol": 1e-10 * R,
                "fatol": 1e-10 * start.steepness,
            },
        )
        return best

    def boundary_slope(self, seen: Sequence[Spot]) -> float | None:
        """The smallest ``|grad g|`` at points with g = 0, found by bisection."""
        outside = [spot.point for spot in seen if spot.infeasible]
        inside = [spot.point for spot in seen if not spot.infeasible]
        pairs = list(zip(outside, inside, strict=False))[:BOUNDARY_PAIRS]
        return min((self._crossing(*pair).steepness for pair in pairs), default=None)

    def _crossing(self, outside: list[Tensor], inside: list[Tensor]) -> Spot:
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            t = 0.5 * (low + high)
            spot = self.look(combine([1.0 - t, t], [outside, inside]))
            low, high = (t, high) if spot.infeasible else (low, t)
        return self.look(combine([1.0 - high, high], [outside, inside]), always=True)
