"""Tests of the assumptions of a theorem at a few points: what they refute is false.

A theorem speaks of all points of the safeguard ball, so no number of points proves its
assumptions. One point can refute them, and then the theorem says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from oneproj.certificates.feasibility import borrowed, doubled, like, outward
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.sets import SetConstraint
from oneproj.theory import ConvexConstants, NonconvexConstants
from oneproj.theory.observations import ROUNDINGS, Observations
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    difference,
    distance,
    dot,
    norm,
    rounding_unit,
)

DIRECTIONS = 4
"""Random directions, each with its opposite, in which points are tested."""
CROSSINGS = 2
"""Segments on which the boundary is looked for."""
BISECTIONS = 64
"""Halvings after which two points are neighbours in float64."""
JUMP = 1e-3
"""Share of the largest gradient: a smaller change of the gradient is no jump."""
SURE = 1e-6
"""Share of its terms by which a value must be below a linearisation to refute it."""
INSIDE = 0.9
"""Distance from the centre, in radii, of the points of the ball that are tested."""
BEYOND = (1.01, 3.0)
"""Distances from the centre, in radii, at which no point may be feasible."""


@dataclass(frozen=True)
class _Look:
    """A point with the value and the gradient of g there, in float64."""

    point: list[Tensor]
    value: float
    gradient: list[Tensor]


@dataclass
class Examination:
    """What a few points say about the assumptions behind a theorem.

    Attributes:
        refuted: What the theorem assumes and what was seen instead; empty if nothing
            contradicts it.
        counts: Full passes and gradients that were used.
    """

    refuted: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("objective gradients", "constraint gradients", "constraint passes"), 0
        )
    )


def examine(
    problem: Problem,
    constants: ConvexConstants | NonconvexConstants,
    seen: Observations | None = None,
) -> Examination:
    """Look for a contradiction to the assumptions of ass:convex or ass:nonconvex.

    What a run saw counts (``seen``). Besides: the gradients at the present point and at
    a few points of the ball; whether g is declared convex and lies above its
    linearisations (convex); whether its gradient jumps on a segment between two of the
    points; its slope where the segments cross the boundary; and whether a point outside
    the ball is feasible. What contradicts an assumption refutes it, up to rounding.

    Args:
        problem: Its parameters are moved to look around, and restored bit for bit.
        constants: What is claimed.
        seen: What a run saw.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        >>> half = oneproj.function(w.sum, curvature="linear") <= 0.5
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {"c": half}, radius=1)
        >>> claims = ConvexConstants(
        ...     weak_convexity=1.0, gradient_bound=1.0, constraint_gradient_bound=1.0,
        ...     boundary_slope=1.0)
        >>> examine(problem, claims).refuted
        ['|x - center| of every feasible x <= 1 (radius); 1.01 was seen']
    """
    found = Examination()
    constraints = list(problem.constraints.items())
    if len(constraints) != 1:
        found.refuted.append(
            f"one differentiable constraint g; this problem has {len(constraints)}"
        )
        return found
    (name, g), convex = constraints[0], isinstance(constants, ConvexConstants)
    if convex and g.curvature not in ("convex", "linear"):
        found.refuted.append(undeclared(name))
    kept = Observations() if seen is None else replace(seen)
    scout = _Scout(problem, g, kept, found.counts)
    with borrowed(problem.parameters) as x:
        found.refuted += scout.explore(x, convex=convex)
    rounding = rounding_unit(problem.parameters)
    found.refuted += kept.contradictions(constants, rounding)
    return found


def undeclared(name: str) -> str:
    """What to say of a constraint that a convex schedule needs to be convex.

    Example:
        >>> undeclared("ring")
        "a convex g; 'ring' is not declared convex or linear"
    """
    return f"a convex g; {name!r} is not declared convex or linear"


class _Scout:
    """Looks around and notes what it sees; the caller restores the parameters."""

    def __init__(
        self,
        problem: Problem,
        g: AbstractTerm,
        seen: Observations,
        counts: dict[str, int],
    ) -> None:
        self._problem, self._g, self._seen, self._counts = problem, g, seen, counts
        self._eps = rounding_unit(problem.parameters)
        self._sure = max(SURE, ROUNDINGS * self._eps)
        self._generator = torch.Generator().manual_seed(0)
        self._dent = ""

    def explore(self, x: Vector, *, convex: bool) -> list[str]:
        """Look at the present point and around; return what is not about constants."""
        problem, refuted = self._problem, []
        slope = problem.objective.value_and_gradient(problem.parameters)[1]
        self._counts["objective gradients"] += 1
        self._seen.add(objective_gradient=norm(slope))
        here = self._look(x)
        directions = list(self._directions(x))
        if math.isinf(problem.radius):
            return []
        try:
            jump = self._explore_ball(here, directions)
        except Exception as error:  # noqa: BLE001 - of a user's function: of any kind
            return [f"a g that can be evaluated in the ball; {error}"]
        if convex:
            refuted += [reason for reason in (self._dent, jump) if reason]
        self._leave(here, directions)
        return refuted

    def _explore_ball(self, here: _Look, directions: list[list[Tensor]]) -> str:
        """Look at points of the ball; return a jump of the gradient, in words."""
        near = [self._at(u, INSIDE * self._problem.radius) for u in directions]
        within = [self._look(point) for point in near]
        self._dent = _dent([here, *within], self._sure)
        jumps = [self._follow(here, other) for other in within]
        opposite = [look for look in within if (look.value > 0) != (here.value > 0)]
        for other in opposite[:CROSSINGS]:
            self._cross(here, other)
        return next(filter(None, jumps), "")

    def _directions(self, x: Vector) -> Iterator[list[Tensor]]:
        for _ in range(DIRECTIONS):
            u = [
                torch.randn(
                    t.shape,
                    generator=self._generator,
                    dtype=torch.float64,
                    device=self._generator.device,
                ).to(t.device)
                for t in x
            ]
            length = norm(u)
            yield combine([1.0 / length], [u])
            yield combine([-1.0 / length], [u])

    def _at(self, direction: Vector, far: float) -> list[Tensor]:
        center = self._problem.center
        if center is None:
            return combine([far], [direction])
        return combine([far, 1.0], [direction, doubled(center)])

    def _look(self, point: Vector) -> _Look:
        """Look at a point of the ball, rounded to the parameters' dtypes."""
        problem = self._problem
        assign(problem.parameters, point)
        value, gradient = self._g.value_and_gradient(problem.parameters)
        self._counts["constraint gradients"] += 1
        look = _Look(doubled(problem.parameters), value, doubled(gradient))
        length = norm(look.gradient)
        far, normal = outward(look.point, problem.center)
        if far > problem.radius * (1.0 + ROUNDINGS * self._eps):
            return look  # the constants do not speak of it
        self._seen.add(constraint_gradient=length)
        if value > 0:
            near = far >= problem.radius * (1.0 - ROUNDINGS * self._eps)
            inward = min(dot(look.gradient, normal), 0.0) if near else 0.0
            slope = math.sqrt(max(length**2 - inward**2, 0.0))
            self._seen.add(infeasible_gradient=length, infeasible_slope=slope)
        return look

    def _value(self, point: Vector) -> float:
        assign(self._problem.parameters, point)
        self._counts["constraint passes"] += 1
        return self._g.value()

    def _follow(self, a: _Look, b: _Look) -> str:
        """Halve the segment where the gradient changes most; report a jump."""
        scale = max(norm(a.gradient), norm(b.gradient))
        for _ in range(BISECTIONS):
            change, apart = distance(a.gradient, b.gradient), distance(a.point, b.point)
            noise = ROUNDINGS * self._eps * scale
            if apart > 0:
                self._seen.add(constraint_smoothness=(change - noise) / apart)
            if change <= max(JUMP * scale, noise):
                return ""
            middle = self._look(combine([0.5, 0.5], [a.point, b.point]))
            self._dent = self._dent or _dent([a, middle, b], self._sure)
            if _has_end(middle.point, a.point, b.point):
                break
            first = distance(a.gradient, middle.gradient)
            second = distance(middle.gradient, b.gradient)
            a, b = (a, middle) if first >= second else (middle, b)
        return (
            f"a continuously differentiable g; its gradient changes by {change:.3g} "
            f"between points that are {apart:.1g} apart"
        )

    def _cross(self, a: _Look, b: _Look) -> None:
        """Look at the boundary between a feasible and an infeasible point."""
        inside, outside = (a, b) if a.value <= 0 else (b, a)
        low, high = inside.point, outside.point
        for _ in range(BISECTIONS):
            halfway = combine([0.5, 0.5], [low, high])
            middle = doubled(like(halfway, self._problem.parameters))
            if _has_end(middle, low, high):
                break
            low, high = (low, middle) if self._value(middle) > 0 else (middle, high)
        self._seen.add(boundary_slope=norm(self._look(low).gradient))

    def _leave(self, here: _Look, directions: list[list[Tensor]]) -> None:
        """Look for feasible points outside the ball."""
        R, tangents = self._problem.radius, []
        length = norm(here.gradient)
        if length > 0:
            n = combine([1.0 / length], [here.gradient])
            tangents = [combine([1.0, -dot(u, n)], [u, n]) for u in directions]
            directions = [*directions, combine([-1.0], [n])]
        points = [self._at(u, far * R) for u in directions for far in BEYOND]
        points += [combine([1.0, BEYOND[1] * R], [here.point, t]) for t in tangents]
        for point in points:
            member = self._member(point)
            try:
                feasible = self._value(member) <= 0
            except Exception:  # noqa: BLE001, S112 - g need not exist out there
                continue
            if feasible:
                there = doubled(self._problem.parameters)
                far = outward(there, self._problem.center)[0]
                self._seen.add(feasible_distance=far)
                if far > R * (1.0 + ROUNDINGS * self._eps):
                    return

    def _member(self, point: list[Tensor]) -> list[Tensor]:
        """The nearest point of a closed-form set; the point itself for a function."""
        if not isinstance(self._g, SetConstraint):
            return point
        assign(self._problem.parameters, point)
        return [
            self._g.members.project(p.detach()) if p is self._g.tensor else p.detach()
            for p in self._problem.parameters
        ]


def _has_end(middle: Vector, a: Vector, b: Vector) -> bool:
    """Whether rounding leaves no point between two."""
    return 0.0 in (distance(a, middle), distance(middle, b))


def _dent(looks: list[_Look], sure: float) -> str:
    """A value below a linearisation, in words; nothing if there is none.

    Args:
        looks: At some points.
        sure: Share of the terms by which it must be below, more than rounding explains.
    """
    for a in looks:
        for b in looks:
            rise = dot(a.gradient, difference(b.point, a.point))
            terms = (
                abs(a.value)
                + abs(b.value)
                + norm(a.gradient) * (norm(a.point) + norm(b.point))
            )
            if a.value + rise - b.value > sure * terms:
                return (
                    f"a convex g; where a linearisation of it is {a.value + rise:.6g} "
                    f"its value is {b.value:.6g}"
                )
    return ""
