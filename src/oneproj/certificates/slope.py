"""Looking at the slope of the worst constraint, point by point and downhill.

An empirical check of the infeasible-slope condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from oneproj.certificates.feasibility import borrowed, doubled, like, outward
from oneproj.certificates.multipliers import shortest_combination
from oneproj.errors import InvalidProblemError
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    assign,
    combine,
    dimension,
    flat,
    norm,
    project_ball_,
    rounding_unit,
    unflat,
)

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


SAMPLES = 200
REFINED = 3
"""How many of the lowest samples are followed downhill."""
ROUNDINGS = 8.0
"""A slope may fall short of its claim by so many roundings of the gradient."""
ZERO_SLOPE = 1e-6
"""A slope below this fraction of the steepest gradient seen is zero, numerically."""


def infeasible_slope(
    problem: Problem,
    generator: torch.Generator,
    *,
    claimed: float | None = None,
    samples: int = SAMPLES,
) -> Measure:
    """The smallest slope of the constraint found at an infeasible point of the ball.

    The condition of Theorem thm:nonconvex (eq. infeasible-slope) asks for
    ``dist(0, grad g(x) + N_B(x)) >= sigma_out > 0`` wherever g(x) > 0 in the ball B: at
    every infeasible point, also where the ball blocks the way, g can be decreased. Here
    g is the worst residual; where several constraints attain it to rounding, the
    distance is to the convex hull of their gradients.

    This looks for a counterexample: at the current point, at samples of the ball
    (uniform by volume and, since almost all of that is far out, by radius) and of its
    surface, and from the lowest of them downhill (Nelder-Mead, in at most 20
    dimensions). A small value found is a fact, with its place in ``details``; a large
    one is evidence, not a proof.

    Args:
        problem: Its parameters are moved to look around, and restored bit for bit.
        generator: Draws the samples.
        claimed: sigma_out; the measure then says whether anything lies below it.
        samples: How many points by volume; half as many by radius and on the surface.

    Returns:
        A measure with the bound ``>= claimed``, less rounding. In its details,
        ``"violation"`` names what is wrong, or is None; ``"boundary slope"`` is the
        smallest ``|grad g|`` found where g = 0 (eq. boundary-cq), None if no boundary
        was met.

    Raises:
        InvalidProblemError: The ball has no finite radius, or there is no constraint.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        >>> two_rings = oneproj.function(lambda: (w.square() - 0.25).square().sum())
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: 0 * w.sum()), {"g": two_rings <= 1 / 64},
        ...     radius=1.0)
        >>> measure = infeasible_slope(problem, torch.Generator().manual_seed(0))
        >>> measure.details["violation"]
        'the slope is zero at an infeasible point'
    """
    if math.isinf(problem.radius) or not problem.constraints or samples < 1:
        message = (
            "The infeasible-slope condition speaks of every point of the safeguard "
            f"ball where a constraint is > 0, but the radius is {problem.radius}, "
            f"there are {len(problem.constraints)} constraints and {samples} samples. "
            "Try: a finite radius, at least one constraint and one sample."
        )
        raise InvalidProblemError(message)
    scout = Scout(problem)
    with borrowed(problem.parameters) as x:
        points = _samples(problem, x, generator, samples)
        seen = [scout.look(point) for point in (x, *points)]
        seen.sort(key=lambda spot: spot.slope)
        low = [spot for spot in seen[:REFINED] if spot.infeasible]
        found = [scout.lowest_nearby(spot) for spot in low]
        seen += [new for new, old in zip(found, low, strict=True) if new is not old]
        boundary = scout.boundary_slope(seen)
    lowest = min(seen, key=lambda spot: spot.slope)
    if claimed is not None:  # less than rounding is no violation
        claimed -= ROUNDINGS * rounding_unit(problem.parameters) * lowest.steepness
    counted = {
        "boundary slope": boundary,
        "constraint passes": scout.passes,
        "constraint gradients": scout.gradients,
    }
    return Measure(
        "infeasible slope",
        lowest.slope,
        bound=claimed,
        at_least=True,
        source="eq. infeasible-slope, by sampling",
        details=_details(problem, seen, lowest, claimed) | counted,
    )


def _details(
    problem: Problem, seen: list[Spot], lowest: Spot, claimed: float | None
) -> dict[str, Any]:
    infeasible = [spot for spot in seen if spot.infeasible]
    steepest = max((spot.steepness for spot in infeasible), default=0.0)
    violation = None
    if infeasible and lowest.slope <= ZERO_SLOPE * steepest:
        violation = "the slope is zero at an infeasible point"
    elif claimed is not None and lowest.slope < claimed:
        violation = f"the slope is {lowest.slope:.6g} < {claimed:.6g} as claimed"
    return {
        "violation": violation,
        "where": like(lowest.point, problem.parameters) if infeasible else None,
        "worst residual there": lowest.residual if infeasible else None,
        "on the safeguard ball": lowest.on_surface,
        "infeasible points": len(infeasible),
        "points": len(seen),
    }


def _samples(
    problem: Problem, x: Vector, generator: torch.Generator, count: int
) -> Iterable[list[Tensor]]:
    """Points of the ball, uniform by volume, by radius, and on the surface."""
    d = dimension(x)
    half = (count + 1) // 2
    for power in (*[1.0 / d] * count, *[1.0] * half, *[0.0] * half):
        direction = [_gaussian(tensor, generator) for tensor in x]
        share = torch.rand((), generator=generator, device=generator.device)
        radius = problem.radius * float(share) ** power
        torch._foreach_mul_(direction, radius / norm(direction))
        if problem.center is not None:
            torch._foreach_add_(direction, [c.double() for c in problem.center])
        yield direction


def _gaussian(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(
        tensor.shape, generator=generator, dtype=torch.float64, device=generator.device
    ).to(tensor.device)
