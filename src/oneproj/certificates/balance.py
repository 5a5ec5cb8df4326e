"""What holds a point against the slope of the objective: the program behind KKT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from oneproj.certificates.combination import Column, Combiner, ShortestVector
from oneproj.certificates.feasibility import ball_excess
from oneproj.certificates.normals import Neighbour
from oneproj.certificates.points import doubled, outward
from oneproj.parameters import Vector, combine, dot, norm, offset, rounding_unit
from oneproj.problem import Problem
from oneproj.projection.margins import MARGIN_POWER
from oneproj.projection.sets import SetConstraint

BALL = "\0ball"
"""The owner of the safeguard ball's normal; a name does not begin like this."""
ROUNDS = 50
"""How often the sets are asked for one more normal; a few times is the rule."""
SETTLED = 1e-10
"""A normal that cuts off less than this share of the reach changes nothing."""


@dataclass(frozen=True)
class Balance:
    """The multipliers, and what is left of the gradient."""

    residual: float
    slope: float
    """``|grad f|``."""
    multipliers: Mapping[str, float]
    complementarity: float
    """The sum of multiplier times slack, the ball's included."""
    ball: float
    """The multiplier of the safeguard ball."""
    gradients: int
    projections: int


def balance(problem: Problem, gradient: Vector, length: float, reach: float) -> Balance:
    """Minimise ``(t/2)|r|^2 + complementarity`` over multipliers and normals.

    The program is the dual of a projection: ``d = -t r`` is the step nearest to
    ``-t grad f`` that keeps ``c_j + <grad c_j, d> <= 0`` and leads into the sets. A set
    is known by its cuts. Each round projects x + d onto every set, and where x + d lies
    outside, the normal there joins the cone. For one set alone the first is exact.

    Args:
        problem: Evaluated where its parameters are.
        gradient: Of the objective.
        length: Of the point.
        reach: ``t |grad f|``, a distance.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([1.0, 0.0], requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(w.sum), {"w": oneproj.sets.Simplex().on(w)})
        >>> found = balance(problem, [torch.tensor([-3.0, 4.0])], 1.0, reach=0.01)
        >>> found.residual < 1e-12, round(found.multipliers["w"], 6)
        (True, 5.0)
    """
    parameters, sets = problem.parameters, _neighbours(problem)
    # A normal is the difference of near points: single precision would blur it.
    copied = doubled if sets else list
    pull = _Pull(copied(gradient), length, reach, rounding_unit(parameters))
    functions = [name for name in problem.constraints if name not in sets]
    for name in functions:
        value, normal = problem.constraints[name].value_and_gradient(parameters)
        pull.add(name, dict(enumerate(copied(normal))), -value)
    room = _room(problem)
    if room < reach + pull.free:
        normal = outward(parameters, problem.center)[1]
        pull.add(BALL, dict(enumerate(copied(normal))), room)
    found = pull.settle(sets)
    return Balance(
        residual=found.norm,
        slope=pull.slope,
        multipliers={name: pull.size(name, found) for name in problem.constraints},
        complementarity=pull.complementarity(found),
        ball=pull.size(BALL, found),
        gradients=len(functions),
        projections=sum(beside.projections for beside in sets.values()),
    )


def _neighbours(problem: Problem) -> dict[str, Neighbour]:
    return {
        name: Neighbour(constraint, problem.parameters)
        for name, constraint in problem.constraints.items()
        if isinstance(constraint, SetConstraint)
    }


def _room(problem: Problem) -> float:
    """How far the ball's surface is; it holds no point outside."""
    if math.isinf(problem.radius):
        return math.inf
    room = problem.radius - norm(offset(problem.parameters, problem.center))
    return math.inf if room < 0 < ball_excess(problem) else room


class _Pull:
    """The cone of normals around a point, each with its owner and its slack."""

    def __init__(
        self, gradient: list[Tensor], length: float, reach: float, eps: float
    ) -> None:
        self.slope, self._reach = norm(gradient), reach
        # Slack that a projector's margin makes.
        self.free: float = eps**MARGIN_POWER * length
        self._time = reach / self.slope if self.slope > 0 else math.inf
        self._program = Combiner([gradient])
        self._columns: list[Column] = []
        self._owners: list[str] = []
        self._slacks: list[float] = []

    def add(self, owner: str, column: Column, slack: float) -> None:
        """Add a normal, unless it is too far away to matter."""
        size = norm(list(column.values()))
        paid = max(slack - self.free * size, 0.0)
        # t|r| is at most the reach: what is beyond it has multiplier 0.
        if self.slope == 0 or paid >= self._reach * size:
            return
        self._program.add(column, paid / self._time)
        self._columns.append(column)
        self._owners.append(owner)
        self._slacks.append(slack)

    def settle(self, sets: Mapping[str, Neighbour]) -> ShortestVector:
        """Solve, and ask the sets for normals until they have no new ones."""
        found = self._program.solve()
        for _ in range(ROUNDS if self.slope > 0 else 0):
            new = [self._ask(name, sets[name], found) for name in sets]
            if not any(new):
                break
            found = self._program.solve()
        return found

    def _ask(self, name: str, beside: Neighbour, found: ShortestVector) -> bool:
        """Add the normals of a set that shorten what is found; False if none does."""
        r = found.vector[beside.place]
        weights, normals = self._held_by(name, found)
        if not self._try(name, beside, r, r):
            return False
        if weights:  # also the best normal of this set, if all others stayed
            [own] = combine(weights, normals)
            self._try(name, beside, r - own, r)
        return True

    def _try(self, name: str, beside: Neighbour, pull: Tensor, r: Tensor) -> bool:
        """Add the normal where the set stops a step along the pull, if it is of use."""
        normal = beside.normal(-self._time * pull)
        if normal is None:
            return False
        blocked = -self._time * dot([normal.direction], [r])
        if blocked <= max(normal.slack - self.free, 0.0) + SETTLED * self._reach:
            return False
        self.add(name, {beside.place: normal.direction}, normal.slack)
        return True

    def _held_by(
        self, owner: str, found: ShortestVector
    ) -> tuple[list[float], list[Vector]]:
        """The weights and normals of an owner that take part."""
        mine = [
            (weight, list(column.values()))
            for weight, column, whose in zip(
                found.weights[1:], self._columns, self._owners, strict=False
            )
            if whose == owner and weight > 0
        ]
        return [weight for weight, _ in mine], [normal for _, normal in mine]

    def size(self, owner: str, found: ShortestVector) -> float:
        """The multiplier: the weight of a gradient, or the length of a set's normal."""
        weights, normals = self._held_by(owner, found)
        if len(weights) <= 1:  # a set's normals are of length 1
            return math.fsum(weights)
        return norm(combine(weights, normals))

    def complementarity(self, found: ShortestVector) -> float:
        """The sum of weight times slack."""
        pairs = zip(found.weights[1:], self._slacks, strict=True)
        return math.fsum(weight * abs(slack) for weight, slack in pairs)
