"""Tests of a theorem's assumptions at points of the safeguard ball.

A theorem makes assumptions about all points of the ball. No number of points proves
them, but one point can refute them, and then the theorem guarantees nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from oneproj.certificates.kkt import borrowed, doubled, like, outward
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.errors import InvalidProblemError
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.sets import SetConstraint
from oneproj.theory import ConvexConstants, NonconvexConstants
from oneproj.theory.constants import ROUNDINGS, Observations
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    assign,
    combine,
    difference,
    dimension,
    distance,
    dot,
    flat,
    norm,
    project_ball_,
    rounding_unit,
    unflat,
)
from oneproj.vectors.qp import gram, solve_simplex_qp


@dataclass(frozen=True)
class ProbedPoint:
    """A point, the worst residual g there, and its slope.

    Attributes:
        point: In float64.
        residual: g, the largest residual.
        slope: ``dist(0, subdifferential g + N_B)``, with N_B the normals of the ball;
            inf at a feasible point, where the conditions do not ask for it.
        gradients: Of the constraints that attain g; empty where none was computed.
        on_surface: Whether the point is on the ball's surface, up to rounding.
    """

    point: list[Tensor]
    residual: float
    slope: float
    gradients: Sequence[Vector]
    on_surface: bool

    @property
    def infeasible(self) -> bool:
        """Whether g > 0."""
        return self.residual > 0

    @property
    def steepness(self) -> float:
        """The largest gradient norm; 0 where no gradient was computed."""
        return max(map(norm, self.gradients), default=0.0)


class Explorer:
    """Evaluates the constraints at other points, and counts what that costs.

    The caller restores the parameters.
    """

    def __init__(self, problem: Problem) -> None:
        """Explore the ball of this problem."""
        self.problem, self.eps = problem, rounding_unit(problem.parameters)
        self.passes = 0
        self.gradients = 0

    def probe(self, point: Vector, *, gradients: bool = False) -> ProbedPoint:
        """Evaluate at a point; gradients only where it is infeasible, or if asked."""
        problem, z = self.problem, self.problem.parameters
        assign(z, point)
        y = doubled(z)
        if gradients:
            found = {n: c.value_and_gradient(z) for n, c in problem.constraints.items()}
            values = {name: value for name, (value, _) in found.items()}
        else:
            values = problem.residuals()
            self.passes += len(values)
        worst = max(values.values())
        length, normal = outward(y, problem.center)
        surface = length >= problem.radius * (1.0 - TOL.tie_roundings * self.eps)
        if worst <= 0 and not gradients:
            return ProbedPoint(y, worst, math.inf, (), surface)
        tie = TOL.tie_roundings * self.eps * max(abs(worst), 1.0)
        tied = [name for name, value in values.items() if value >= worst - tie]
        if not gradients:
            found = {n: problem.constraints[n].value_and_gradient(z) for n in tied}
        self.gradients += len(found)
        hull, cone = [doubled(found[name][1]) for name in tied], [normal] * surface
        slope = _shortest_norm(hull, cone) if worst > 0 else math.inf
        return ProbedPoint(y, worst, slope, hull, surface)

    def counts(self) -> dict[str, int]:
        """Return what was used, by the names of a certificate's details."""
        return {
            "constraint passes": self.passes,
            "constraint gradients": self.gradients,
        }

    def boundary(self, inside: Vector, outside: Vector) -> ProbedPoint:
        """Return a feasible point beside an infeasible one, found by bisection."""
        low, high = inside, outside
        for _ in range(TOL.bisections):
            halfway = combine([0.5, 0.5], [low, high])
            middle = doubled(like(halfway, self.problem.parameters))
            if _has_end(middle, low, high):
                break
            infeasible = self.value(middle) > 0
            low, high = (low, middle) if infeasible else (middle, high)
        return self.probe(low, gradients=True)

    def value(self, point: Vector) -> float:
        """Return the worst residual at a point."""
        assign(self.problem.parameters, point)
        residuals = self.problem.residuals()
        self.passes += len(residuals)
        return max(residuals.values())

    def at(self, direction: Vector, far: float) -> list[Tensor]:
        """Return the point that far from the centre, along a unit vector."""
        center = self.problem.center
        if center is None:
            return combine([far], [direction])
        return combine([far, 1.0], [direction, doubled(center)])

    def direction(self, generator: torch.Generator) -> list[Tensor]:
        """Draw a unit vector, uniformly."""
        drawn = [
            torch.randn(
                p.shape,
                generator=generator,
                dtype=torch.float64,
                device=generator.device,
            ).to(p.device)
            for p in self.problem.parameters
        ]
        return combine([1.0 / norm(drawn)], [drawn])


def _shortest_norm(hull: Sequence[Vector], cone: Sequence[Vector]) -> float:
    """Return the norm of the shortest vector of ``conv(hull) + cone(cone)``."""
    vectors = [*hull, *cone]
    if len(vectors) == 1:
        return norm(hull[0])
    simplex = np.arange(len(vectors)) < len(hull)
    weights = solve_simplex_qp(gram(vectors), np.zeros(len(vectors)), simplex).z
    return norm(combine(weights.tolist(), vectors))


def _has_end(middle: Vector, a: Vector, b: Vector) -> bool:
    """Return whether rounding leaves no point between two."""
    return 0.0 in (distance(a, middle), distance(middle, b))


def examine(
    problem: Problem,
    constants: ConvexConstants | NonconvexConstants,
    observed: Observations | None = None,
) -> tuple[list[str], dict[str, int]]:
    """Look for a contradiction to the assumptions of ass:convex or ass:nonconvex.

    It uses what a run saw, the gradients at the present point, and a few points of the
    ball. It checks the gradient bounds; whether g is declared convex and lies above its
    linearisations (convex setting); whether its gradient jumps between two of the
    points; its slope where the segments between them cross the boundary; and whether a
    point outside the ball is feasible. A difference within rounding refutes nothing.

    It costs one gradient of the objective and about a hundred of the constraint.

    Args:
        problem: Its parameters are moved, and restored bit for bit.
        constants: What is claimed.
        observed: What a run saw.

    Returns:
        What the theorem assumes and what was seen instead, empty if nothing contradicts
        it; and the full passes and gradients that were used.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        >>> half = oneproj.function(w.sum, curvature="linear") <= 0.5
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {"c": half}, radius=1)
        >>> claims = ConvexConstants(
        ...     weak_convexity=1.0, gradient_bound=1.0, constraint_gradient_bound=1.0,
        ...     boundary_slope=1.0)
        >>> examine(problem, claims)[0]
        ['|x - center| of every feasible x <= 1 (radius); 1.01 was seen']
    """
    constraints = list(problem.constraints.items())
    if len(constraints) != 1:
        one = f"one differentiable constraint g; this problem has {len(constraints)}"
        return [one], {}
    (name, g), convex = constraints[0], isinstance(constants, ConvexConstants)
    declared = not convex or g.curvature in ("convex", "linear")
    refuted = [] if declared else [undeclared(name)]
    examiner = _Examiner(
        problem, Observations() if observed is None else replace(observed)
    )
    with borrowed(problem.parameters) as x:
        refuted += examiner.explore(x, convex=convex)
    refuted += examiner.observed.contradictions(constants, examiner.eps)
    return refuted, {"objective gradients": 1, **examiner.counts()}


def undeclared(name: str) -> str:
    """Return the objection to a constraint that a convex schedule needs to be convex.

    Example:
        >>> undeclared("ring")
        "a convex g; 'ring' is not declared convex or linear"
    """
    return f"a convex g; {name!r} is not declared convex or linear"


class _Examiner(Explorer):
    """An explorer that keeps the extremes it sees of a single constraint g."""

    def __init__(self, problem: Problem, observed: Observations) -> None:
        super().__init__(problem)
        [self._g] = problem.constraints.values()
        self.observed = observed
        self._nonconvex = ""  # a value below a linearisation, in words

    def explore(self, x: Vector, *, convex: bool) -> list[str]:
        """Probe around x; return the objections that are not about constants."""
        problem = self.problem
        slope = problem.objective.value_and_gradient(problem.parameters)[1]
        self.observed.add(objective_gradient=norm(slope))
        here = self._observe(x)
        if math.isinf(problem.radius):
            return []
        generator = torch.Generator().manual_seed(0)
        drawn = [self.direction(generator) for _ in range(TOL.directions)]
        directions = [combine([s], [u]) for u in drawn for s in (1.0, -1.0)]
        try:
            jump = self._explore_ball(here, directions)
        except Exception as error:  # noqa: BLE001 - a user's function raises anything
            return [f"a g that can be evaluated in the ball; {error}"]
        self._explore_outside(here, directions)
        return [reason for reason in (self._nonconvex, jump) if reason and convex]

    def _explore_ball(self, here: ProbedPoint, directions: Sequence[Vector]) -> str:
        """Probe points of the ball; return a jump of the gradient, in words."""
        far = TOL.inside * self.problem.radius
        within = [self._observe(self.at(u, far)) for u in directions]
        self._check_convexity([here, *within])
        jumps = [self._find_jump(here, other) for other in within]
        opposite = [p for p in within if p.infeasible != here.infeasible]
        for other in opposite[: TOL.boundary_segments]:
            inside, outside = (other, here) if here.infeasible else (here, other)
            edge = self.boundary(inside.point, outside.point)
            self.observed.add(boundary_slope=edge.steepness)
        return next(filter(None, jumps), "")

    def _observe(self, point: Vector) -> ProbedPoint:
        """Probe a point, and keep its gradient if the point is in the ball."""
        probed, problem = self.probe(point, gradients=True), self.problem
        far = outward(probed.point, problem.center)[0]
        if far <= problem.radius * (1.0 + ROUNDINGS * self.eps):
            length = probed.steepness
            self.observed.add(constraint_gradient=length)
            if probed.infeasible:
                self.observed.add(
                    infeasible_gradient=length, infeasible_slope=probed.slope
                )
        return probed

    def _find_jump(self, a: ProbedPoint, b: ProbedPoint) -> str:
        """Halve the segment where the gradient changes most; describe a jump."""
        scale = max(a.steepness, b.steepness)
        noise = ROUNDINGS * self.eps * scale
        for _ in range(TOL.bisections):
            change = distance(a.gradients[0], b.gradients[0])
            apart = distance(a.point, b.point)
            if apart > 0:
                self.observed.add(constraint_smoothness=(change - noise) / apart)
            if change <= max(TOL.gradient_jump * scale, noise):
                return ""
            middle = self._observe(combine([0.5, 0.5], [a.point, b.point]))
            self._check_convexity([a, middle, b])
            if _has_end(middle.point, a.point, b.point):
                break
            first = distance(a.gradients[0], middle.gradients[0])
            second = distance(middle.gradients[0], b.gradients[0])
            a, b = (a, middle) if first >= second else (middle, b)
        return (
            f"a continuously differentiable g; its gradient changes by {change:.3g} "
            f"between points that are {apart:.1g} apart"
        )

    def _check_convexity(self, points: Sequence[ProbedPoint]) -> None:
        """Keep the first value that lies below a linearisation, beyond rounding."""
        sure = max(TOL.convexity_excess, ROUNDINGS * self.eps)
        for a in points if not self._nonconvex else ():
            for b in points:
                line = a.residual + dot(a.gradients[0], difference(b.point, a.point))
                terms = abs(a.residual) + abs(b.residual)
                terms += a.steepness * (norm(a.point) + norm(b.point))
                if line - b.residual > sure * terms:
                    self._nonconvex = (
                        f"a convex g; where a linearisation of it is {line:.6g} "
                        f"its value is {b.residual:.6g}"
                    )
                    return

    def _explore_outside(
        self, here: ProbedPoint, directions: list[list[Tensor]]
    ) -> None:
        """Look for feasible points outside the ball."""
        R, tangents = self.problem.radius, []
        if here.steepness > 0:
            n = combine([1.0 / here.steepness], [here.gradients[0]])
            tangents = [combine([1.0, -dot(u, n)], [u, n]) for u in directions]
            directions = [*directions, combine([-1.0], [n])]
        points = [self.at(u, far * R) for u in directions for far in TOL.outside]
        points += [
            combine([1.0, TOL.outside[1] * R], [here.point, t]) for t in tangents
        ]
        for point in points:
            try:
                feasible = self.value(self._member(point)) <= 0
            except Exception:  # noqa: BLE001, S112 - g need not exist out there
                continue
            if feasible:
                there = doubled(self.problem.parameters)
                far = outward(there, self.problem.center)[0]
                self.observed.add(feasible_distance=far)
                if far > R * (1.0 + ROUNDINGS * self.eps):
                    return

    def _member(self, point: list[Tensor]) -> list[Tensor]:
        """Return the nearest point of a closed-form set; the point for a function."""
        if not isinstance(self._g, SetConstraint):
            return point
        assign(self.problem.parameters, point)
        return [
            self._g.members.project(p.detach()) if p is self._g.tensor else p.detach()
            for p in self.problem.parameters
        ]


def infeasible_slope(
    problem: Problem,
    generator: torch.Generator,
    *,
    claimed: float | None = None,
    samples: int = TOL.slope_samples,
) -> Measure:
    """Return the smallest slope of g that was found at an infeasible point of the ball.

    Theorem thm:nonconvex assumes ``dist(0, grad g(x) + N_B(x)) >= sigma_out > 0``
    wherever g(x) > 0 in the ball B (eq. infeasible-slope): at every infeasible point g
    can be decreased, also where the ball blocks the way. Here g is the worst residual;
    where several constraints attain it to rounding, the distance is to the convex hull
    of their gradients.

    This looks for a counterexample: at the current point, at samples of the ball
    (uniform by volume and, since almost all of that is far out, by radius) and of its
    surface, and from the lowest of them downhill (Nelder-Mead, in at most 20
    dimensions). A small value is a fact, with its place in ``details``; a large one is
    evidence, not a proof.

    It costs one pass over the constraints per sample and some hundreds per descent, and
    a gradient at every infeasible point.

    Args:
        problem: Its parameters are moved, and restored bit for bit.
        generator: Draws the samples.
        claimed: sigma_out; the measure then says whether anything lies below it.
        samples: Points by volume; half as many by radius, and on the surface.

    Returns:
        A measure with the bound ``>= claimed``, less rounding. In its details,
        ``"violation"`` names what is wrong, or is None.

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
            "The infeasible-slope condition is about every point of the safeguard "
            f"ball where a constraint is > 0, but the radius is {problem.radius}, "
            f"there are {len(problem.constraints)} constraints and {samples} samples. "
            "Try: a finite radius, at least one constraint and one sample."
        )
        raise InvalidProblemError(message)
    explorer = Explorer(problem)
    with borrowed(problem.parameters) as x:
        points = _samples(explorer, dimension(x), generator, samples)
        probed = [_probe_in_ball(explorer, point) for point in (x, *points)]
        probed.sort(key=lambda p: p.slope)
        low = [p for p in probed[: TOL.descents] if p.infeasible]
        found = [_descend(explorer, p) for p in low]
        probed += [new for new, old in zip(found, low, strict=True) if new is not old]
    lowest = min(probed, key=lambda p: p.slope)
    if claimed is not None:  # less than rounding is no violation
        claimed -= TOL.claim_roundings * explorer.eps * lowest.steepness
    infeasible = [p for p in probed if p.infeasible]
    return Measure(
        "infeasible slope",
        lowest.slope,
        bound=claimed,
        at_least=True,
        source="eq. infeasible-slope, by sampling",
        details={
            "violation": _violation(infeasible, lowest.slope, claimed),
            "where": like(lowest.point, problem.parameters) if infeasible else None,
            "worst residual there": lowest.residual if infeasible else None,
            "on the safeguard ball": lowest.on_surface,
            "infeasible points": len(infeasible),
            "points": len(probed),
            **explorer.counts(),
        },
    )


def _violation(
    infeasible: Sequence[ProbedPoint], slope: float, claimed: float | None
) -> str | None:
    steepest = max((p.steepness for p in infeasible), default=-math.inf)
    if slope <= TOL.zero_slope * steepest:
        return "the slope is zero at an infeasible point"
    if claimed is not None and slope < claimed:
        return f"the slope is {slope:.6g} < {claimed:.6g} as claimed"
    return None


def _probe_in_ball(explorer: Explorer, point: Vector) -> ProbedPoint:
    y = doubled(point)
    project_ball_(y, explorer.problem.radius, explorer.problem.center)
    return explorer.probe(y)


def _samples(
    explorer: Explorer, d: int, generator: torch.Generator, count: int
) -> Iterator[list[Tensor]]:
    """Draw points of the ball, uniform by volume, by radius, and on the surface."""
    half = (count + 1) // 2
    for power in (*[1.0 / d] * count, *[1.0] * half, *[0.0] * half):
        u = explorer.direction(generator)
        share = torch.rand((), generator=generator, device=generator.device)
        yield explorer.at(u, explorer.problem.radius * float(share) ** power)


def _descend(explorer: Explorer, start: ProbedPoint) -> ProbedPoint:
    """Search for a lower slope from an infeasible point, without derivatives."""
    x, best = flat(start.point), start
    if len(x) > TOL.descent_dimension:
        return start

    def slope(v: Array) -> float:
        nonlocal best
        probed = _probe_in_ball(explorer, unflat(v, start.point))
        if not probed.infeasible:
            # Send the search back: the deeper inside, the larger the value.
            return start.slope + start.steepness - probed.residual
        best = probed if probed.slope < best.slope else best
        return probed.slope

    R = explorer.problem.radius
    options = {
        "initial_simplex": np.vstack([x, x + 0.1 * R * np.eye(len(x))]),
        "maxfev": TOL.descent_evaluations * (len(x) + 1),
        "xatol": 1e-10 * R,
        "fatol": 1e-10 * start.steepness,
    }
    scipy.optimize.minimize(slope, x, method="Nelder-Mead", options=options)
    return best
