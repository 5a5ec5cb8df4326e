"""Cuts within closed-form sets: the nearest point of both, by its dual.

``min (1/2)|d|^2  subject to  x_0 + d in S  and  <n_i, d> <= h_i``

for a product S of closed-form sets. A set has a normal for every direction it can be
left in, and cuts would collect them one by one; its nearest point is known in closed
form instead. Given multipliers z >= 0 of the cuts, the d that minimises the Lagrangian
takes one projection, ``x_0 + d = P_S(y)`` with ``y = x_0 - sum_i z_i n_i``, and that
leaves the dual

    ``D(z) = (1/2)|d|^2 + z'D'(z),   D'(z)_i = <n_i, d> - h_i``,

which is concave, smooth, and of few numbers: one per cut. Any z gives a lower bound.
P_S(y) being nearest, ``<y - P_S(y), x - P_S(y)> <= 0`` for all x in S, and if x also
satisfies the cuts this says, with the Schwarz inequality,

    ``|x - x_0| >= |d| + z'D'(z) / |d|``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from oneproj.problem.terms import AbstractTerm
from oneproj.projection.bundle import Bundle
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.local_model import random_direction
from oneproj.projection.tolerances import TOLERANCES
from oneproj.sets import SetConstraint
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import (
    Array,
    Mask,
    Vector,
    assign,
    combine,
    dimension,
    dot,
    norm,
)
from oneproj.vectors.qp import EPSILON, solve_nonnegative_qp
from oneproj.vectors.space import AbstractPacked, is_short, space_around


class DualValue(NamedTuple):
    """A value, its derivatives, and how high the highest point is proven to be."""

    value: float
    gradient: Array
    proof: float = 0.0
    length: float = 0.0
    """Of the displacement that it is of."""


class SetBundle(Bundle):
    """Cuts of functions within the sets of a region.

    Example:
        >>> import torch
        >>> from oneproj.sets.balls import Ball
        >>> w = torch.zeros(2, dtype=torch.float64)
        >>> region = Region([w], {"size": Ball(1.0).on(w)})
        >>> start = [torch.tensor([3.0, 4.0], dtype=torch.float64)]
        >>> bundle = SetBundle(region, start, capacity=10)
        >>> pack = bundle.space.pack
        >>> first = pack([torch.tensor([1.0, 0.0], dtype=torch.float64)])
        >>> _ = bundle.add("first", 3.0, first, first.times(0.0))    # 3 + d_1 <= 0
        >>> bundle.solve({"first": 0.0}), round(bundle.lower_bound(), 4)
        (True, 4.2426)
        >>> {name: round(mu, 6) for name, mu in bundle.multipliers().items()}
        {'first': 3.0, 'size': 3.0}
    """

    def __init__(self, region: Region, origin: Vector, capacity: int) -> None:
        """Start without cuts."""
        super().__init__(capacity)
        self.region = region
        wide = is_short(origin)
        self._origin = [x.double() for x in origin] if wide else list(origin)
        self.space = space_around(self._origin)
        self._zero = self.space.displacement(self._origin)
        self._size = norm(origin)
        self.missed = 0.0
        """How far a solution may be outside of a cut by rounding."""

    def minimise(self, offsets: Array) -> bool:
        """Set z to the dual solution; whether D has a maximum."""
        self.z, found = self._maximise(offsets, self.offset - offsets, self._zero)
        self.d = -(self.z @ self.normals)
        return found

    @property
    def contradicts(self) -> bool:
        """Whether the last solution has none: ``excludes`` tells what that means."""
        return True

    def target(self, center: AbstractPacked, curvature: float) -> list[Tensor]:
        """Return a point whose nearest point of the region is to be evaluated next.

        Without curvature that is the solution. With it, it minimises
        ``|d|^2 + curvature |d - center|^2``, the distance from ``share * center``.
        """
        if curvature == 0.0:
            return self._target(self.z, self._zero)
        shift = center.times(curvature / (1.0 + curvature))
        levels = self.normals @ self.basis.products(shift)
        z, _ = self._maximise(self.tight - levels, self.offset - self.tight, shift)
        return self._target(z, shift)

    def nearest(self) -> list[Tensor]:
        """Return the solution, a point of the region."""
        return self.region.nearest(self._target(self.z, self._zero))

    def displacement(self, like: AbstractPacked) -> AbstractPacked:
        """Return the solution, seen from the start."""
        del like
        return self.space.displacement(self.nearest())

    def length(self) -> float:
        """Return the distance of the solution."""
        return self.displacement(self._zero).norm()

    def excludes(self, size: float) -> bool:
        """Whether the last multipliers prove that no point of the region is feasible.

        They lower ``sum_i z_i <n_i, d>`` over the region. Where that ends above what
        the cuts ask for, they exclude it all; where the region has no end, as in a
        wedge, they only say that the common points are far away.
        """
        del size
        if self.excludes_all:
            return True
        offset = self.offset + TOLERANCES.sure_units * self.rounding
        unit = self._farthest(offset, self._zero)
        z = self.z * (TOLERANCES.beyond_sets / max(float(self.z.sum()), EPSILON))
        found = self._dual_value(z * unit, offset, self._zero)
        # Where the region lowers them most they are above what rounding explains.
        beyond = float(z @ found.gradient) > 0
        return beyond and found.length <= TOLERANCES.ends_within * unit

    def multipliers(self) -> dict[str, float]:
        """Return the weights of constraints; of sets, lengths of ``y - P(y)``."""
        return super().multipliers() | {
            n: norm([v]) for n, v in self.normals_of_sets().items()
        }

    def normals_of_sets(self) -> dict[str, Tensor]:
        """Return ``y - P(y)`` where there are sets: their normals at the solution."""
        y = self._target(self.z, self._zero)
        parts = self.region.parts(y)
        return {name: y[i] - parts[name] for name, i in self.region.places.items()}

    def unit_normals(self) -> dict[str, list[Tensor]]:
        """Return these as vectors of length 1, without those that are 0."""
        found = {}
        for name, vector in self.normals_of_sets().items():
            length = norm([vector])
            if length > 0:
                found[name] = combine([0.0], [self._origin])
                found[name][self.region.places[name]] = vector / length
        return found

    def lower_bound(self) -> float:
        """Return a distance below which no point of the region satisfies the cuts.

        Every z >= 0 proves one. The cuts are not tightened but loosened, by what
        rounding may have done to them.
        """
        offsets = self._loosened()
        z, _ = self._maximise(offsets, np.zeros(len(offsets)), self._zero)
        tried = (z, self.z, np.zeros(len(z)))
        return max(
            0.0, *(self._dual_value(w, offsets, self._zero).proof for w in tried)
        )

    def lagrangian_bound(self) -> float:
        """Return a bound by the last multipliers alone, valid for any closed sets.

        P(y) minimises the Lagrangian over the region whether or not that is convex, so
        that ``(1/2)|d|^2 >= D(z)``. What it falls short of the distance by is the
        duality gap, which sets that are not convex may have.
        """
        value = self._dual_value(self.z, self._loosened(), self._zero).value
        return math.sqrt(max(0.0, 2.0 * value))

    def _proven(self, h: Array, z: Array) -> float:
        return self._dual_value(z, h, self._zero).proof

    def _target(self, z: Array, shift: AbstractPacked) -> list[Tensor]:
        y = [x.clone() for x in self._origin]
        moved = self.basis.vector(-(z @ self.normals), self._zero)
        moved.add(shift, 1.0)
        self.space.write(moved, y)
        return y

    def _dual_value(self, z: Array, offsets: Array, shift: AbstractPacked) -> DualValue:
        d = self.space.displacement(self.region.nearest(self._target(z, shift)))
        d = d.minus(shift)
        length = d.norm()
        gradient = self.normals @ self.basis.products(d) - offsets
        gain = float(z @ gradient)
        # Every unit normal may be off by its rounding, which counts where they cancel.
        width = length + EPSILON * float(z.sum())
        proof = (length**2 + gain) / width if length > 0 else 0.0
        return DualValue(0.5 * length**2 + gain, gradient, proof, length)

    def _maximise(
        self, offsets: Array, slack: Array, shift: AbstractPacked
    ) -> tuple[Array, bool]:
        """Return the best z for these offsets, and whether D has a maximum."""
        if not len(offsets):
            return offsets, True
        farthest = self._farthest(offsets, shift)
        self.missed = TOLERANCES.missed_units * EPSILON * (self._size + farthest)
        far = TOLERANCES.far_sets * farthest
        z = ascend(
            lambda z: self._dual_value(z, offsets, shift),
            self.gram,
            self.z,
            enough=np.maximum(TOLERANCES.missed_share * slack, self.missed),
            far=far,
            unit=farthest + EPSILON**0.25 * self._size,
        )
        return z, self._dual_value(z, offsets, shift).proof <= far

    def _farthest(self, offsets: Array, shift: AbstractPacked) -> float:
        """Return the distance of the farthest of the cuts and sets."""
        outside = self._dual_value(np.zeros(len(offsets)), offsets, shift).proof
        return max(outside, float(np.abs(offsets).max()))


def ascend(
    dual: Callable[[Array], DualValue],
    bound: Array,
    start: Array,
    *,
    enough: Array,
    far: float,
    unit: float,
) -> Array:
    """Maximise over ``z >= 0`` by Newton steps.

    Each step maximises a quadratic model over z >= 0, whose curvature is that of the
    last two slopes in every coordinate. Where that step does not gain, the next model
    has the bound for its curvature: its step always gains, but for rounding. If the
    function is piecewise quadratic, the last step is exact.

    Args:
        dual: The function.
        bound: A matrix H with ``-f'' <= H``.
        start: Where to begin.
        enough: The slopes to stop at: no larger, and where z > 0 no smaller than minus.
        far: The proof to stop at.
        unit: The size of a step that is not small, to difference slopes by.

    Example:
        >>> f = lambda z: DualValue(float(z[0] - 0.5 * z[0] ** 2), 1.0 - z)
        >>> zero, one = np.zeros(1), np.ones((1, 1))
        >>> ascend(f, one, zero, enough=zero + 1e-12, far=9.0, unit=1.0).round(9)
        array([1.])
    """
    z, here = start, dual(start)
    for _ in range(TOLERANCES.ascent_steps):
        beyond = np.where(z > 0, np.abs(here.gradient), here.gradient)
        if here.proof > far or not (beyond > enough).any():
            break
        free = (z > 0) | (here.gradient > 0)
        most = bound[np.ix_(free, free)]
        apart = TOLERANCES.apart * (unit + float(np.abs(z).sum()))
        curvature = _curvature(dual, z, here, free, most, apart)
        for H in (curvature + TOLERANCES.bound_least * most, most):
            step = np.zeros_like(z)
            step[free] = _model_step(H, here.gradient[free], z[free])
            there = dual(z + step)
            if _gains(here, there, step, H, free):
                z, here = z + step, there
                break
        else:
            break  # only rounding keeps the bound's own step from a gain
    return z


def _gains(
    here: DualValue, there: DualValue, step: Array, H: Array, free: Mask
) -> bool:
    """Whether a step made a part of the gain that was predicted.

    Near the top gains are below the rounding of values; slopes tell them still.
    """
    rise, fall = float(here.gradient @ step), -float(there.gradient @ step)
    predicted = rise - 0.5 * float(step[free] @ H @ step[free])
    noise = 64.0 * EPSILON * (abs(here.value) + abs(there.value))
    if predicted > noise:
        return there.value - here.value >= TOLERANCES.decrease * predicted
    return rise > 0 and fall <= 0.9 * rise


def _curvature(  # noqa: PLR0917 - the free part of one step
    dual: Callable[[Array], DualValue],
    z: Array,
    here: DualValue,
    free: Mask,
    bound: Array,
    apart: float,
) -> Array:
    """Minus the second derivatives by the free entries, where they are negative.

    Slopes are differenced along the eigenvectors of the bound: there is no curvature
    along those where it has none, as with more cuts than they have dimensions.
    """
    most, axes = np.linalg.eigh(bound)
    curved = most > TOLERANCES.independent * EPSILON * most[-1]
    most, axes = np.sqrt(most[curved]), axes[:, curved]
    columns = []
    for size, axis in zip(most, axes.T, strict=True):
        aside = z.copy()
        aside[free] += apart / size * axis
        columns.append((here.gradient - dual(aside).gradient)[free] * (size / apart))
    H = axes.T @ np.array(columns).T
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    vectors = axes @ vectors
    curvature: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return curvature


def _model_step(H: Array, gradient: Array, z: Array) -> Array:
    """The step to the maximiser of the model over ``z + step >= 0``."""
    found = solve_nonnegative_qp(H, -gradient - H @ z, z)
    way = found.z - z
    if found.ray is not None:
        way = way + (1.0 + np.abs(z).sum()) * found.ray
    step: Array = way
    return step


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
        gradient = evaluator.first.gradients[name]
        rounding = evaluator.margins[name] + evaluator.share * norm(gradient) * norm(
            move
        )
        if abs(evaluator.first.values[name] + dot(gradient, move) - value) > rounding:
            return False
    return True
