"""Minimise a strongly convex function over convex constraints, with a proof.

The Moreau residual and the penalty residual are distances to

    ``Q = argmin H(y)  subject to  c_j(y) <= 0,  |y - center| <= radius``

with H m-strongly convex, possibly nonsmooth, and c_j convex. Nothing is evaluated
outside the ball, where the assumptions say nothing.

**Method: cutting planes.** An evaluation at y_k gives the minorant ``H(y) >= H_k +
<h_k, y - y_k> + (m/2)|y - y_k|^2`` and, for each constraint, the linear cut ``c_k +
<q_k, y - y_k> <= 0``. Seen from one fixed origin all minorants share their curvature,
so the minorants differ in a linear part only. The next point is the minimiser of their
maximum under the cuts, which is a quadratic program on the Gram matrix of the cuts.

**Guarantee.** Let y be feasible and let the cuts prove, for every feasible u,
``H(u) >= H(y) - lift + <r, u - y> + (m/2)|u - y|^2``. Take u = Q and add
``H(y) >= H(Q) + (m/2)|y - Q|^2``, which holds because Q minimises over a convex set
that contains y. Then ``m D^2 <= lift + |r| D`` for ``D = |y - Q|``, that is

    ``|y - Q| <= (|r| + sqrt(|r|^2 + 4 m lift)) / (2m)``.

No multiplier, Lipschitz constant or tolerance enters, only the claim that m, H and c_j
are as stated. It needs a feasible y. Where a new point violates a constraint by e > 0,
it is pulled towards a point p with c(p) <= -s < 0 by the fraction ``e / (e + s)``,
which is enough by convexity. In few dimensions SLSQP suggests a first point. It costs
gradients, but where H is smooth a cut there is accurate to the rounding of gradients,
while cuts alone end at the square root of the rounding of values (in float32 an error
of 2e-2 in place of 1e-6), and one more point refutes more false claims.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
from torch import Tensor

from oneproj.certificates.kkt import doubled, outward
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
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
from oneproj.vectors.qp import EPSILON, solve_simplex_qp

BALL, OBJECTIVE = "\0ball", "\0objective"
"""Labels of cuts that belong to no constraint; no name begins like this."""


@dataclass(frozen=True)
class Cut:
    """The value and gradient of a function at a point.

    Attributes:
        value: There.
        gradient: There, in float64.
        label: Names the function.
        size: Of the numbers behind the value, to which rounding is relative.
    """

    value: float
    gradient: list[Tensor]
    label: str
    size: float

    @classmethod
    def of(cls, term: AbstractTerm, parameters: Vector, label: str) -> Cut:
        """Evaluate a term on all data.

        Its size is that of the value, of the numbers it is the difference of, and of
        its change when the point is rounded.

        Example:
            >>> import oneproj, torch
            >>> w = torch.tensor([3.0], requires_grad=True)
            >>> cap = oneproj.function(lambda: w.square().sum()) <= 9.0
            >>> cut = Cut.of(cap, [w], "c")
            >>> cut.value, cut.gradient[0].tolist(), cut.size
            (0.0, [6.0], 36.0)
        """
        value, gradient = term.value_and_gradient(parameters)
        size = abs(value) + 2.0 * term.scale() + norm(gradient) * norm(parameters)
        return cls(value, doubled(gradient), label, size)

    def plus_square(self, weight: float, offset: Vector) -> Cut:
        """Return the cut of the function plus ``(weight/2)|y - x|^2``, offset = y - x.

        Example:
            >>> import torch
            >>> one = [torch.ones(1, dtype=torch.float64)]
            >>> Cut(0.0, one, "c", 0.0).plus_square(2.0, one).value
            1.0
        """
        return replace(
            self,
            value=self.value + 0.5 * weight * dot(offset, offset),
            gradient=combine([1.0, weight], [self.gradient, offset]),
        )


@dataclass(frozen=True, eq=False)
class Linearization:
    """A point with the cuts there: the pieces, whose maximum is H, and the c_j."""

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
class Minimum:
    """A feasible point and what the cuts prove about its distance to the minimiser.

    Attributes:
        best: The point.
        error: ``|best.point - Q|`` is at most this.
        lower: A lower bound on min H.
        weights: Of every label in the proof: convex weights and multipliers.
        refuted: The label of a function that is not as convex as claimed, if one is.
        model_point: Where the proven lower bound is smallest.
        noise: The part of the squared error that stands for rounding.
        evaluations: Calls of the oracle.
    """

    best: Linearization
    error: float
    lower: float
    weights: dict[str, float]
    refuted: str | None
    model_point: list[Tensor]
    noise: float
    evaluations: int = 0


Oracle = Callable[[list[Tensor]], Linearization]
"""Linearizes H and the constraints at a point, which the parameters hold as well."""


def minimise(
    problem: Problem,
    oracle: Oracle,
    strong_convexity: float,
    anchor: Vector,
    *,
    origin: list[Tensor],
    max_iterations: int = TOL.max_iterations,
    enough: Callable[[float, float], bool] | None = None,
) -> Minimum:
    """Minimise H from a feasible anchor; the caller restores the parameters.

    It costs one call of the oracle per step, and up to three where points are
    infeasible.

    Args:
        problem: Its parameters are moved within its ball.
        oracle: H and the constraints.
        strong_convexity: m.
        anchor: A point of the ball that satisfies the constraints, best strictly.
        origin: The point from which displacements are measured.
        max_iterations: Steps of the cutting-plane method; the error bounds what is
            left.
        enough: Ends the search, given an upper and a lower bound on min H. Where it is
            given no first point is suggested.
    """
    search = _Search(problem, oracle, strong_convexity, origin)
    search.visit(anchor)
    search.visit(origin)
    if enough is None and dimension(origin) <= TOL.sqp_dimension:
        search.visit(search.suggest())
    result, stalled = search.judge(), 0
    for _ in range(max_iterations):
        if stalled >= TOL.stalled_steps or search.finished(result.error):
            break
        if enough is not None and enough(search.best.value, result.lower):
            break
        search.advance()
        now = search.judge()
        stalled = 0 if now.error < result.error else stalled + 1
        result = now if now.error < result.error else result
    return replace(result, evaluations=search.evaluations, refuted=search.refuted)


class _Search:
    """The evaluations so far: their cuts, the best point, the most interior one."""

    best: Linearization  # the feasible point with the smallest H
    _deepest: Linearization  # the point with the smallest residual
    _model: Minimum  # what the cuts prove

    def __init__(
        self, problem: Problem, oracle: Oracle, m: float, origin: list[Tensor]
    ) -> None:
        self._problem, self._oracle, self._m, self._origin = problem, oracle, m, origin
        self._center = None if problem.center is None else doubled(problem.center)
        self._eps = rounding_unit(problem.parameters)
        self._cuts = Minorants(origin, m, self._eps)
        self.evaluations = 0
        self.refuted: str | None = None

    def evaluate(self, point: Vector) -> Linearization:
        """Move the point into the ball, write it to the parameters, and linearize."""
        radius, y = self._problem.radius, doubled(point)
        if outward(y, self._center)[0] > radius:
            # Inside by a few roundings, so that the parameters' dtype stays inside.
            project_ball_(y, radius * (1 - 4 * self._eps), self._center)
        assign(self._problem.parameters, y)
        self.evaluations += 1
        return self._oracle(doubled(self._problem.parameters))

    def visit(self, point: Vector) -> None:
        """Evaluate, keep the cuts, and pull the point inside if it is infeasible."""
        there = last = self._record(self.evaluate(point))
        for k in range(TOL.pulls):
            if last.worst <= 0:
                return
            depth = there.worst - self._deepest.worst
            share = min(1.0, (1 + TOL.pull_overshoot * 8**k) * there.worst / depth)
            pair = [there.point, self._deepest.point]
            last = self._record(self.evaluate(combine([1 - share, share], pair)))

    def _record(self, there: Linearization) -> Linearization:
        if self.evaluations == 1:
            self.best = self._deepest = there
        if there.worst <= 0 and there.value < self.best.value:
            self.best = there
        if there.worst < self._deepest.worst:
            self._deepest = there
        for piece in there.pieces:
            self._cuts.add(piece, there.point, curvature=self._m)
        for cut in there.constraints:
            self._cuts.add(cut, there.point)
        return there

    def advance(self) -> None:
        """Visit the minimiser of the model; cut the ball where it is outside."""
        y, radius = self._model.model_point, self._problem.radius
        length, normal = outward(y, self._center)
        if length > radius:
            self._cuts.add(Cut(length - radius, normal, BALL, length + norm(y)), y)
        self.visit(y)

    def judge(self) -> Minimum:
        """Bound the distance to the minimiser from the best feasible point."""
        self._model = self._cuts.solve(self.best)
        self.refuted = self.refuted or self._model.refuted
        return self._model

    def finished(self, error: float) -> bool:
        """Return whether the target is met, or rounding leaves nothing to gain."""
        radius = self._problem.radius
        scale = radius if math.isfinite(radius) else 1.0 + norm(self._origin)
        target = TOL.relative_error * distance(self.best.point, self._origin)
        floor = 2.0 * math.sqrt(self._model.noise)
        return error <= max(target + TOL.absolute_error * scale, floor)

    def suggest(self) -> list[Tensor]:
        """Return a point near the minimiser, by SLSQP.

        Solves ``min p_0(y) + t  subject to  p_j(y) - p_0(y) <= t,  0 <= t,  c_j(y) <=
        0,  |y - center| <= R`` in (y, t), smooth even where the maximum has a kink;
        with one piece there is no t.
        """
        start, rows = self.best, dict[bytes, tuple[Array, Array]]()
        v = flat(start.point)
        size = len(v)
        if len(start.pieces) > 1:
            v = np.append(v, start.value - start.pieces[0].value)
        last = [v]

        def at(v: Array) -> tuple[Array, Array]:
            if (key := v.tobytes()) not in rows:
                if len(rows) >= TOL.sqp_evaluations + 4 * size:
                    raise StopIteration
                there = self.evaluate(unflat(v[:size], start.point))
                rows[key] = _sqp_rows(there, v, self._problem.radius, self._center)
            return rows[key]

        with warnings.catch_warnings(), suppress(StopIteration):
            # Whatever goes wrong here only makes a worse suggestion.
            warnings.simplefilter("ignore")
            scipy.optimize.minimize(
                lambda v: at(v)[0][0],
                v,
                jac=lambda v: at(v)[1][0],
                constraints={
                    "type": "ineq",
                    "fun": lambda v: at(v)[0][1:],
                    "jac": lambda v: at(v)[1][1:],
                },
                method="SLSQP",
                callback=lambda v: last.append(v.copy()),
                options={"ftol": 0.5 * self._eps, "maxiter": 10_000},
            )
        end = next(v for v in reversed(last) if np.isfinite(v).all())
        return unflat(end[:size], start.point)


def _sqp_rows(
    there: Linearization, v: Array, radius: float, center: Vector | None
) -> tuple[Array, Array]:
    """Return the objective, then what must be >= 0, with their gradients in (y, t)."""
    y = flat(there.point)
    n = len(y)
    outside, t = v[:n] - y, v[n:]

    def extended(cut: Cut) -> tuple[float, Array]:
        # Outside the ball nothing is evaluated: the tangent continues each cut.
        gradient = flat(cut.gradient)
        return cut.value + float(gradient @ outside), np.append(gradient, 0.0 * t)

    (p, q), *others = map(extended, there.pieces)
    p, q = p + float(t.sum()), q + np.append(np.zeros(n), np.ones(len(t)))
    rows = [(p, q), *((p - value, q - gradient) for value, gradient in others)]
    if others:
        rows.append((float(t.sum()), np.append(np.zeros(n), 1.0)))
    rows += [(-c, -gradient) for c, gradient in map(extended, there.constraints)]
    if math.isfinite(radius):
        offset = (v[:n] - (0.0 if center is None else flat(center))) / radius
        gradient = np.append(-2.0 * offset / radius, 0.0 * t)
        rows.append((1.0 - float(offset @ offset), gradient))
    return np.array([value for value, _ in rows]), np.array([g for _, g in rows])


@dataclass(frozen=True, eq=False)
class _Minorant:
    """A cut, where it touches, and its linear part seen from the origin."""

    cut: Cut
    point: list[Tensor]
    vector: list[Tensor]
    height: float
    piece: bool  # of H; otherwise of a constraint


class Minorants:
    """The cuts so far, with their Gram matrix, in float64.

    Each holds one vector of the parameters' size, and each evaluation one more.
    """

    def __init__(
        self, origin: Vector, strong_convexity: float, rounding: float
    ) -> None:
        """Start empty; ``rounding`` is the relative error of values and gradients."""
        self._origin, self._m, self._eps = origin, strong_convexity, rounding
        self._all: list[_Minorant] = []
        self._gram, self._z = np.zeros((0, 0)), np.zeros(0)

    def __len__(self) -> int:
        """Return the number of cuts."""
        return len(self._all)

    def add(self, cut: Cut, point: list[Tensor], *, curvature: float = 0.0) -> None:
        """Add a minorant: of H with its curvature m, of a constraint without."""
        offset = difference(point, self._origin)
        vector = combine([1.0, -curvature], [cut.gradient, offset])
        height = cut.value - 0.5 * curvature * dot(offset, offset) - dot(vector, offset)
        self._all.append(_Minorant(cut, point, vector, height, piece=curvature > 0))
        row = np.array([dot(vector, other.vector) for other in self._all])
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1, :] = self._gram[:, -1] = row
        self._z = np.append(self._z, 0.0)

    def solve(self, reference: Linearization) -> Minimum:
        """Find the weights z that prove the highest lower bound on H.

        Summing to 1 over the pieces of H, they prove for every feasible y that ``H(y)
        >= H(ref) - z'lift + <r, y - ref> + (m/2)|y - ref|^2``, which is smallest at
        ``ref - r/m``: a quadratic program on the Gram matrix. Its terms are >= 0 when
        the reference is feasible, so near the optimum nothing large cancels.
        """
        m, on = self._m, np.array([cut.piece for cut in self._all])
        d = difference(reference.point, self._origin)
        reach = np.array([dot(cut.vector, d) for cut in self._all])
        raw, noise = self._lifts(reference, reach, dot(d, d))
        # A height below zero is rounding or a false claim. Zero proves less, safely.
        lift = np.maximum(raw, 0.0) + noise
        P = self._gram / m + np.outer(reach, on) + np.outer(on, reach)
        P += m * dot(d, d) * np.outer(on, on)
        start = self._z if self._z.any() else None
        self._z = z = solve_simplex_qp(P, lift, on, start).z
        used = np.flatnonzero(z)
        r = combine([m, *z[used].tolist()], [d, *(self._all[k].vector for k in used)])
        weights: dict[str, float] = {}
        for k in used:
            label = self._all[k].cut.label
            weights[label] = weights.get(label, 0.0) + float(z[k])
        lowest = int(np.argmin(raw + TOL.refuted_cut * noise))
        false = raw[lowest] + TOL.refuted_cut * noise[lowest] < 0
        size = norm(r) + self._eps * float(z @ np.sqrt(np.diag(self._gram)))
        gap = float(z @ lift)
        result = Minimum(
            best=reference,
            error=(size + math.sqrt(size * size + 4.0 * m * gap)) / (2.0 * m),
            lower=reference.value - gap - size * size / (2.0 * m),
            weights=weights,
            refuted=self._all[lowest].cut.label if false else None,
            model_point=combine([1.0, -1.0 / m], [reference.point, r]),
            noise=float(z @ noise) / m,
        )
        self._forget()
        return result

    def _lifts(
        self, reference: Linearization, reach: Array, square: float
    ) -> tuple[Array, Array]:
        """Return the height of the reference above each cut, and its rounding error."""
        value, cuts = reference.value, self._all
        on, height, at, size = np.array(
            [(c.piece, c.height, c.cut.value, c.cut.size) for c in cuts], dtype=float
        ).T
        lift = (value - 0.5 * self._m * square) * on - (height + reach)
        noise = self._eps * (size + on * max(p.size for p in reference.pieces))
        noise += 4 * EPSILON * (np.abs(height) + np.abs(reach))
        # Cuts that touch at the reference itself: their heights need no arithmetic,
        # and that of the highest piece is zero whatever the rounding of H.
        own = np.array([c.point is reference.point for c in cuts])
        lift[own] = (value * on - at)[own]
        noise[own & (on > 0) & (lift == 0)] = 0.0
        return lift, noise

    def _forget(self) -> None:
        """Drop the oldest cuts without weight; the bound they prove stays the same."""
        idle = np.flatnonzero(self._z == 0)[: -TOL.idle_cuts]
        keep = np.setdiff1d(np.arange(len(self._z)), idle)
        self._all = [self._all[k] for k in keep]
        self._gram, self._z = self._gram[np.ix_(keep, keep)], self._z[keep]
