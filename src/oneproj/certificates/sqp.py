"""A first guess for a small problem: scipy's sequential quadratic programming.

It proves nothing; the cuts do that. But a cut made at the minimiser of a smooth problem
closes the gap at once, where cuts alone would have to model its curvature.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.optimize
from torch import Tensor

from oneproj.arrays import Array
from oneproj.certificates.minorants import Cut, Evaluation
from oneproj.flat import flat, unflat
from oneproj.parameters import Vector, dimension

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
