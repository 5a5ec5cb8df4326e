"""Minorants of a strongly convex problem, and the lower bound that they prove.

If H is m-strongly convex, an evaluation at y_k gives the minorant
``H(y) >= H_k + <h_k, y - y_k> + (m/2)|y - y_k|^2``. Seen from one fixed origin o all of
these share their curvature: ``(m/2)|y - o|^2`` plus a linear part, which is what is
stored. A convex constraint gives the linear cut ``c_k + <q_k, y - y_k> <= 0``.

A projection has cuts of its own (``projection/convex/bundle.py``): its objective is the
squared distance, which is known, so that only the constraints are cut.

A term to first order, with the size of its rounding.

A first guess for a small problem: scipy's sequential quadratic programming.

It proves nothing; the cuts do that. But a cut made at the minimiser of a smooth problem
closes the gap at once, where cuts alone would have to model its curvature.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.optimize
from torch import Tensor

from oneproj.certificates.feasibility import doubled
from oneproj.problem.terms import AbstractTerm
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    combine,
    difference,
    dimension,
    dot,
    flat,
    norm,
    unflat,
)
from oneproj.vectors.qp import EPSILON, refine_on_support, solve_simplex_qp

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


def linearize(term: AbstractTerm, parameters: Vector, label: str) -> Cut:
    """The value and gradient of a term on all data, as a cut in float64.

    Its ``size`` is what the dtype's rounding is relative to: the value, the numbers it
    is the difference of, and how far it moves when the point is rounded.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0], requires_grad=True)
        >>> cut = linearize(oneproj.function(lambda: w.square().sum()) <= 9.0, [w], "c")
        >>> cut.value, cut.gradient[0].tolist(), cut.size
        (0.0, [6.0], 36.0)
    """
    value, gradient = term.value_and_gradient(parameters)
    size = abs(value) + 2.0 * term.scale() + norm(gradient) * norm(parameters)
    return Cut(value, doubled(gradient), label, size)


def shifted(cut: Cut, weight: float, offset: Vector) -> Cut:
    """The cut with ``(weight/2)|offset|^2`` added, a square around another point.

    Example:
        >>> import torch
        >>> one = [torch.ones(1, dtype=torch.float64)]
        >>> shifted(Cut(0.0, one, "c", 0.0), 2.0, one).value
        1.0
    """
    return Cut(
        cut.value + 0.5 * weight * dot(offset, offset),
        combine([1.0, weight], [cut.gradient, offset]),
        cut.label,
        cut.size,
    )


SQP_DIMENSION = 100
"""Above this many numbers its dense matrices cost more than they save."""
SQP_EVALUATIONS = (50, 4)
"""How many points it may try: at most this many, plus this many per dimension."""


def suggest(
    evaluate: Callable[[list[Tensor]], Evaluation],
    start: Evaluation,
    ball: tuple[float, Vector | None],
    accuracy: float,
) -> list[Tensor]:
    """A point near the minimiser of ``max(pieces)`` under the constraints.

    Solves ``min p_0(y) + t  subject to  p_j(y) - p_0(y) <= t,  0 <= t,  c_j(y) <= 0,
    |y - center| <= R`` in the variables (y, t), smooth even where the maximum has a
    kink; with one piece there is no t.

    Args:
        evaluate: Called with a point; moves it into the ball first.
        start: Where to start.
        ball: Its radius, inf for none, and its center, None for the origin.
        accuracy: Of the values; beyond it a line search would chase rounding.
    """
    program = _Program(evaluate, start, *ball)
    last = [program.start]
    with warnings.catch_warnings(), suppress(_SpentError):
        # Whatever goes wrong here only makes a worse guess.
        warnings.simplefilter("ignore")
        scipy.optimize.minimize(
            program.value,
            program.start,
            jac=program.gradient,
            constraints={"type": "ineq", "fun": program.slack, "jac": program.jacobian},
            method="SLSQP",
            callback=lambda v: last.append(v.copy()),
            options={"ftol": 0.5 * accuracy, "maxiter": 10_000},
        )
    end = next(v for v in reversed(last) if np.isfinite(v).all())
    return unflat(end[: program.size], start.point)


class _SpentError(Exception):
    """The allowance of evaluations is used up."""


class _Program:
    """The program in the shape that scipy asks for, each point evaluated once."""

    def __init__(
        self,
        evaluate: Callable[[list[Tensor]], Evaluation],
        start: Evaluation,
        radius: float,
        center: Vector | None,
    ) -> None:
        self._evaluate, self._like, self._radius = evaluate, start.point, radius
        self.size = dimension(start.point)
        self._center = np.zeros(self.size) if center is None else flat(center)
        self.start = flat(start.point)
        if len(start.pieces) > 1:
            self.start = np.append(self.start, start.value - start.pieces[0].value)
        self._seen: dict[bytes, _Linear] = {}
        self._allowance = SQP_EVALUATIONS[0] + SQP_EVALUATIONS[1] * self.size

    def value(self, v: Array) -> float:
        return self._look(v).value + float(v[self.size :].sum())

    def gradient(self, v: Array) -> Array:
        tail = np.ones(len(v) - self.size)
        return np.concatenate([self._look(v).gradient, tail])

    def slack(self, v: Array) -> Array:
        return self._look(v).slack

    def jacobian(self, v: Array) -> Array:
        return self._look(v).jacobian

    def _look(self, v: Array) -> _Linear:
        key = v.tobytes()
        if key not in self._seen:
            if len(self._seen) >= self._allowance:
                raise _SpentError
            self._seen[key] = self._linearize(v)
        return self._seen[key]

    def _linearize(self, v: Array) -> _Linear:
        y, t = v[: self.size], v[self.size :]
        seen = self._evaluate(unflat(y, self._like))
        outside = y - flat(seen.point)
        # Outside the ball nothing is evaluated: the tangent continues each piece.
        base, *others = [_extend(cut, outside) for cut in seen.pieces]
        none = np.zeros(len(t))
        rows = [
            (t.sum() + base[0] - p, np.append(base[1] - q, none + 1)) for p, q in others
        ]
        if others:
            rows.append((float(t[0]), np.append(np.zeros(self.size), 1.0)))
        for cut in seen.constraints:
            c, q = _extend(cut, outside)
            rows.append((-c, np.append(-q, none)))
        if math.isfinite(self._radius):
            offset = (y - self._center) / self._radius
            row = np.append(-2.0 * offset / self._radius, none)
            rows.append((1.0 - float(offset @ offset), row))
        slack = np.array([s for s, _ in rows])
        return _Linear(*base, slack, np.array([r for _, r in rows]).reshape(-1, len(v)))


@dataclass(frozen=True)
class _Linear:
    """The program at one point, to first order."""

    value: float
    gradient: Array
    slack: Array
    jacobian: Array


def _extend(cut: Cut, outside: Array) -> tuple[float, Array]:
    gradient = flat(cut.gradient)
    return cut.value + float(gradient @ outside), gradient
