"""The shortest combination of a few gradients: the test of every first-order condition.

``min (1/2)|sum_k z_k v_k|^2 + sum_k p_k z_k  subject to  z >= 0,  sum of z over the
simplex = 1``, with a price p_k >= 0 on each vector of the cone.

Normals of closed-form sets, seen from a point that is in them, or nearly.

The normals of a set C at p are the ``n = y - p`` with ``p = P_C(y)``: at a corner there
is a cone of them, and the projection of a point y outside picks the one that y asks
for. If C is convex, ``<n, z - p> <= 0`` for all z in C.

What holds a point against the slope of the objective: the program behind KKT.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from oneproj.certificates.feasibility import ball_excess, doubled, outward
from oneproj.problem.problem import Problem
from oneproj.projection.margins import MARGIN_POWER
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    combine,
    dot,
    norm,
    offset,
    rounding_unit,
)
from oneproj.vectors.qp import EPSILON, refine_on_support, solve_simplex_qp

REFINEMENTS = 3
SHORT = 1e-2
"""Below this share of the hull's first vector the weights are worth refining."""

Column: TypeAlias = Mapping[int, Tensor]
"""The tensors of a vector that are not zero, by their place in it."""


@dataclass(frozen=True)
class ShortestVector:
    """The weights, the vector that they give, and its norm."""

    weights: list[float]
    vector: list[Tensor]
    norm: float


def shortest_combination(
    hull: Sequence[Vector], cone: Sequence[Vector] = ()
) -> ShortestVector:
    """Find the shortest vector of ``conv(hull) + cone(cone)``.

    With the gradient of f as the hull and those of the active constraints as the cone
    it is nonnegative least squares: the weights of the cone are the multipliers. The
    program is solved on the Gram matrix; the vector and its norm are computed from the
    gradients themselves, and so are a few corrections of the weights.

    Example:
        >>> down, up = [torch.tensor([0.0, -2.0])], [torch.tensor([0.0, 0.5])]
        >>> found = shortest_combination([down], [up])
        >>> found.weights, found.norm
        ([1.0, 4.0], 0.0)
    """
    program = Combiner(hull)
    for vector in cone:
        program.add(dict(enumerate(vector)))
    return program.solve()


class Combiner:
    """The program above for a cone that grows, one vector at a time.

    Example:
        >>> program = Combiner([[torch.tensor([-2.0, -1.0])]])
        >>> program.add({0: torch.tensor([1.0, 0.0])})
        >>> program.add({0: torch.tensor([0.0, 1.0])}, price=0.25)
        >>> [round(weight, 9) for weight in program.solve().weights]
        [1.0, 2.0, 0.75]
    """

    def __init__(self, hull: Sequence[Vector]) -> None:
        """Start with the hull alone."""
        self._size = len(hull[0])
        self._columns: list[Column] = []
        self._prices, self._gram = np.zeros(0), np.zeros((0, 0))
        self._z: Array | None = None
        for vector in hull:
            self.add(dict(enumerate(vector)))
        self._simplex = len(hull)

    def add(self, column: Column, price: float = 0.0) -> None:
        """Add a vector to the cone."""
        self._columns.append(column)
        row = [_product(column, other) for other in self._columns]
        self._prices = np.append(self._prices, price)
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1, :] = self._gram[:, -1] = row

    def solve(self) -> ShortestVector:
        """The best weights for the vectors so far."""
        gram, price, unit = self._scaled()
        simplex = np.arange(len(unit)) < self._simplex
        start = (
            None if self._z is None else np.pad(self._z, (0, len(unit) - len(self._z)))
        )
        z = solve_simplex_qp(gram, price, simplex, start).z
        found, value = self._combine(z * unit)
        # The squares in the Gram matrix hide only what is short beside the hull.
        for _ in range(REFINEMENTS if found.norm < SHORT * gram[0, 0] ** 0.5 else 0):
            slope, v = price.copy(), dict(enumerate(found.vector))
            for k in np.flatnonzero(z):
                slope[k] += unit[k] * _product(self._columns[k], v)
            refined = refine_on_support(gram, simplex, z, slope)
            better, lower = self._combine(refined * unit)
            if lower >= value:
                break
            z, found, value = refined, better, lower
        self._z = z
        return found

    def _scaled(self) -> tuple[Array, Array, Array]:
        """The program with one common length for the cone's vectors, and that unit."""
        lengths = np.sqrt(np.diag(self._gram))
        unit = np.ones(len(lengths))
        ray = (np.arange(len(lengths)) >= self._simplex) & (lengths > 0)
        unit[ray] = max(lengths[0], EPSILON) / lengths[ray]
        return self._gram * np.outer(unit, unit), self._prices * unit, unit

    def _combine(self, z: Array) -> tuple[ShortestVector, float]:
        """The combination of these weights, and the value of the program."""
        first, *others = np.flatnonzero(z).tolist()
        column = self._columns[first]
        vector = [float(z[first]) * column[i].detach() for i in range(self._size)]
        for k in others:
            places, tensors = zip(*self._columns[k].items(), strict=True)
            total = [vector[i] for i in places]
            given = [tensor.detach() for tensor in tensors]
            torch._foreach_add_(total, given, alpha=float(z[k]))
        length = norm(vector)
        value = 0.5 * length**2 + float(z @ self._prices)
        return ShortestVector(z.tolist(), vector, length), value


def _product(a: Column, b: Column) -> float:
    common = [i for i in a if i in b]
    return dot([a[i] for i in common], [b[i] for i in common])


@dataclass(frozen=True)
class Normal:
    """A unit normal of a set, and how far x is from the plane it belongs to."""

    direction: Tensor
    slack: float
    """``<n, p - x>``: x could move this far along n; < 0 for an x beyond."""


class Neighbour:
    """A set beside the point x that its tensor holds.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> box = Neighbour(oneproj.sets.Box(0.0, 1.0).on(w), [w])
        >>> found = box.normal(torch.tensor([0.3, 0.4], dtype=torch.float64))
        >>> [round(n, 6) for n in found.direction.tolist()], found.slack
        ([0.6, 0.8], 0.0)
    """

    def __init__(self, constraint: SetConstraint, parameters: Vector) -> None:
        """Look at the residual, and find the tensor among the parameters."""
        self._members = constraint.members
        self._x = constraint.tensor.detach().double()
        self.residual = constraint.value()
        self.place = next(i for i, p in enumerate(parameters) if p is constraint.tensor)
        self.projections = 0

    def normal(self, step: Tensor) -> Normal | None:
        """The normal that holds ``x + step`` back; None if nothing does."""
        if norm([step]) <= -self.residual:
            return None  # it stays inside, whatever its direction
        y = self._x + step
        p = self._members.project(y)
        self.projections += 1
        n = y - p
        distance = norm([n])
        if distance == 0:
            return None
        n /= distance
        return Normal(n, dot([n], [p - self._x]))


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
