"""Minorants of a strongly convex problem, and the lower bound that they prove.

If H is m-strongly convex, an evaluation at y_k gives the minorant
``H(y) >= H_k + <h_k, y - y_k> + (m/2)|y - y_k|^2``. Seen from one fixed origin o all of
these share their curvature: ``(m/2)|y - o|^2`` plus a linear part, which is what is
stored. A convex constraint gives the linear cut ``c_k + <q_k, y - y_k> <= 0``.

A projection has cuts of its own (``projection/convex/bundle.py``): its objective is the
squared distance, which is known, so that only the constraints are cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector, combine, difference, dot, norm
from oneproj.simplex_qp import EPSILON, refine_on_support, solve_simplex_qp

SPARE = 128
"""How many cuts without weight are kept; the oldest make room for new ones."""
REFINEMENTS = 3
BROKEN = 1e3
"""A cut that is this many rounding errors above its function is not a cut of it."""


@dataclass(frozen=True)
class Cut:
    """A linear piece where it touches: value and gradient, and whose piece it is."""

    value: float
    gradient: list[Tensor]
    label: str
    size: float
    """Of the numbers behind the value, to which rounding is relative."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A point and what was seen there: the pieces of H, whose maximum it is, and c."""

    point: list[Tensor]
    pieces: Sequence[Cut]
    constraints: Sequence[Cut] = ()

    @property
    def value(self) -> float:
        """H at the point."""
        return max(piece.value for piece in self.pieces)

    @property
    def worst(self) -> float:
        """The largest residual at the point; -inf without constraints."""
        return max((cut.value for cut in self.constraints), default=-math.inf)


@dataclass(frozen=True)
class Model:
    """What the cuts prove, seen from a feasible reference point.

    With weights z of the cuts, summing to 1 over the pieces of H, every feasible y has
    ``H(y) >= H(ref) - lift + <r, y - ref> + (m/2)|y - ref|^2``.
    """

    point: list[Tensor]
    """``ref - r/m``, where this bound is smallest."""
    residual: float
    """``|r|``, the aggregate gradient, plus what rounding may hide."""
    lift: float
    """``sum_k z_k (height of ref above cut k) >= 0``, plus what rounding may hide."""
    noise: float
    """The part of the lift that stands for rounding."""
    weights: dict[str, float]
    """The total weight of each label."""
    broken: str | None
    """The label of a cut above its function: some claimed constant is wrong."""


class Minorants:
    """The cuts seen so far, with their Gram matrix; everything in float64.

    A cut keeps one copy of the parameters, and an evaluation one more.
    """

    def __init__(
        self, origin: Vector, strong_convexity: float, rounding: float
    ) -> None:
        """Start empty; ``rounding`` is the relative error of values and gradients."""
        self._origin, self._m, self._eps = origin, strong_convexity, rounding
        self._vectors: list[list[Tensor]] = []
        self._points: list[list[Tensor]] = []  # where each cut touches, by identity
        self._labels: list[str] = []
        self._values, self._sizes = np.zeros(0), np.zeros(0)
        self._heights = np.zeros(0)  # of the linear part, at the origin
        self._on = np.zeros(0)  # 1 for a piece of H, 0 for a constraint
        self._gram = np.zeros((0, 0))
        self._z = np.zeros(0)

    def add_piece(self, cut: Cut, owner: Evaluation) -> None:
        """Add a quadratic minorant of H."""
        offset = difference(owner.point, self._origin)
        vector = combine([1.0, -self._m], [cut.gradient, offset])
        height = cut.value - 0.5 * self._m * dot(offset, offset) - dot(vector, offset)
        self._append(vector, height, 1.0, cut, owner)

    def add_constraint(self, cut: Cut, owner: Evaluation) -> None:
        """Add a linear minorant of a constraint."""
        height = cut.value - dot(cut.gradient, difference(owner.point, self._origin))
        self._append(cut.gradient, height, 0.0, cut, owner)

    def solve(self, reference: Evaluation) -> Model:
        """Find the weights that prove the highest lower bound on H.

        The bound of weights z is ``H(ref) - z'lift - |r(z)|^2 / (2m)``, a quadratic
        program on the Gram matrix. Every term is >= 0 when the reference is feasible,
        so near the optimum nothing large cancels.
        """
        m, on = self._m, self._on
        d = difference(reference.point, self._origin)
        reach = np.array([dot(vector, d) for vector in self._vectors])
        raw, noise = self._lifts(reference, reach, dot(d, d))
        # A height below zero is rounding or a false claim. Zero proves less, safely.
        lift = np.maximum(raw, 0.0) + noise
        P = self._gram / m + np.outer(reach, on) + np.outer(on, reach)
        P += m * dot(d, d) * np.outer(on, on)
        start = self._z if self._z.any() else None
        self._z = solve_simplex_qp(P, lift, on > 0, start).z
        r = self._refine(P, lift, d)
        z = self._z
        lengths = np.sqrt(np.diag(self._gram))
        model = Model(
            point=combine([1.0, -1.0 / m], [reference.point, r]),
            residual=norm(r) + self._eps * float(z @ lengths),
            lift=float(z @ lift),
            noise=float(z @ noise),
            weights=self._weights(),
            broken=self._broken(raw, noise),
        )
        self._forget()
        return model

    def _refine(self, P: Array, lift: Array, d: Vector) -> list[Tensor]:
        """Polish the weights with the vectors themselves; return the aggregate r."""
        r = self._aggregate(self._z, d)
        for _ in range(REFINEMENTS):
            slope = lift.copy()
            for i in np.flatnonzero(self._z):
                slope[i] += dot(self._vectors[i], r) / self._m
                slope[i] += self._on[i] * dot(d, r)
            z = refine_on_support(P, self._on > 0, self._z, slope)
            better = self._aggregate(z, d)
            if self._loss(z, lift, better) >= self._loss(self._z, lift, r):
                break
            self._z, r = z, better
        return r

    def _loss(self, z: Array, lift: Array, r: Vector) -> float:
        return float(z @ lift) + dot(r, r) / (2.0 * self._m)

    def _aggregate(self, z: Array, d: Vector) -> list[Tensor]:
        used = np.flatnonzero(z)
        vectors = [d, *(self._vectors[i] for i in used)]
        return combine([self._m, *z[used].tolist()], vectors)

    def _append(
        self,
        vector: list[Tensor],
        height: float,
        on: float,
        cut: Cut,
        owner: Evaluation,
    ) -> None:
        self._vectors.append(vector)
        self._points.append(owner.point)
        self._labels.append(cut.label)
        self._values = np.append(self._values, cut.value)
        self._sizes = np.append(self._sizes, cut.size)
        row = np.array([dot(vector, other) for other in self._vectors])
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1, :] = self._gram[:, -1] = row
        self._heights = np.append(self._heights, height)
        self._on, self._z = np.append(self._on, on), np.append(self._z, 0.0)

    def _lifts(
        self, reference: Evaluation, reach: Array, square: float
    ) -> tuple[Array, Array]:
        """The height of the reference above each cut, and its rounding error."""
        value, on = reference.value, self._on
        lift = (value - 0.5 * self._m * square) * on - (self._heights + reach)
        noise = self._eps * (self._sizes + on * max(p.size for p in reference.pieces))
        noise += 4 * EPSILON * (np.abs(self._heights) + np.abs(reach))
        # Cuts that touch at the reference itself: their heights need no arithmetic,
        # and that of the highest piece is zero whatever the rounding of H.
        own = np.array([point is reference.point for point in self._points])
        lift[own] = (value * on - self._values)[own]
        noise[own & (on > 0) & (lift == 0)] = 0.0
        return lift, noise

    def _weights(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for weight, label in zip(self._z.tolist(), self._labels, strict=True):
            if weight > 0:
                total[label] = total.get(label, 0.0) + weight
        return total

    def _broken(self, lift: Array, noise: Array) -> str | None:
        below = lift + BROKEN * noise
        i = int(np.argmin(below))
        return self._labels[i] if below[i] < 0 else None

    def _forget(self) -> None:
        """Drop the oldest cuts without weight; the bound they prove stays the same."""
        idle = np.flatnonzero(self._z == 0)
        if len(idle) <= SPARE:
            return
        keep = np.setdiff1d(np.arange(len(self._z)), idle[: len(idle) - SPARE])
        self._vectors = [self._vectors[i] for i in keep]
        self._points = [self._points[i] for i in keep]
        self._labels = [self._labels[i] for i in keep]
        self._values, self._sizes = self._values[keep], self._sizes[keep]
        self._heights, self._on = self._heights[keep], self._on[keep]
        self._gram, self._z = self._gram[np.ix_(keep, keep)], self._z[keep]
