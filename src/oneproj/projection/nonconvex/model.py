"""A place that was visited, the quadratic model there, and the model's small dual."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from oneproj.projection.evaluator import Evaluation
from oneproj.vectors.arithmetic import Array
from oneproj.vectors.qp import solve_simplex_qp

STRONGER, STRONGEST = 5.0, 1e12
"""By how much the penalty grows when it is too weak to reach the constraints."""
CLOSE, FULL = 1e-9, 0.99
"""A linearised residual of this share is reached; multipliers that add up to this
share of the penalty say that the penalty holds them back."""
GUESSES = 6
"""Sets of active constraints that are tried before the general solver is."""
TINY = 1e-300


class Place(NamedTuple):
    """A visited point: displacement, residuals plus margins, gradients as rows."""

    d: Array
    c: Array
    J: Array
    rows: Array
    """J, and below it d."""
    look: Evaluation
    half: float
    """``(1/2)|d|^2``."""

    def merit(self, rho: float, aim: Array) -> float:
        """``(1/2)|d|^2 + rho max(0, max_j c_j + aim_j)``."""
        violation: float = max(0.0, *(self.c + aim).tolist())
        return self.half + rho * violation

    def imbalance(self, mu: Array) -> float:
        """``|d + sum_j mu_j grad c_j|^2``, which is 0 at a nearest point."""
        left = self.d + mu.dot(self.J)
        return float(left.dot(left))

    def is_balanced(self, mu: Array, share: float) -> bool:
        """Whether at most a share of the displacement is left of it."""
        return self.imbalance(mu) <= 2.0 * share**2 * self.half

    def has_slope(self) -> bool:
        """Whether something that is violated here has a gradient."""
        return any(c > 0 and g.any() for c, g in zip(self.c, self.J, strict=True))


class Model:
    """``(1/2)|d + p|^2 + (1/2) p'Bp`` under ``c_j + <grad c_j, p> <= 0``.

    Example:
        >>> rows = np.array([[2.0, 0.0], [0.0, 1.0]])  # one gradient, and d
        >>> model = Model.flat(rows)
        >>> p, mu = model.feasible_step(0.0, np.array([4.0]))
        >>> p.tolist(), mu.tolist()
        ([-2.0, -1.0], [1.0])
    """

    def __init__(self, rows: Array, divided: Array) -> None:
        """Take the gradients and below them d, and ``(I + B)^{-1}`` times each row."""
        products = rows.dot(divided.T)
        self.J, self._normals, self.free = rows[:-1], divided[:-1], -divided[-1]
        self._gram: Array = products[:-1, :-1]
        self._pull: Array = -products[:-1, -1]
        self.is_definite = min(products.diagonal().tolist()) >= 0
        """Whether no row contradicts that B is positive definite."""

    @classmethod
    def flat(cls, rows: Array) -> Self:
        """The model with B = 0: of the distance, under linear constraints."""
        return cls(rows, rows)

    def step(self, rho: float, c: Array) -> tuple[Array, Array]:
        """The minimiser with the penalty rho on the worst residual; multipliers."""
        b = c + self._pull
        mu = _active_multipliers(self._gram, b)
        if mu is None or sum(mu.tolist()) > rho:
            mu = self._held_back(rho, b)
        return self.free - mu.dot(self._normals), mu

    def _held_back(self, rho: float, b: Array) -> Array:
        """The multipliers that a penalty admits which is too weak for the constraints.

        In units of rho they and a slack lie in the unit simplex.
        """
        m = len(b)
        if m == 1:
            return np.array([rho])
        P, w = np.zeros((m + 1, m + 1)), np.zeros(m + 1)
        P[:m, :m], w[:m] = rho * self._gram, -b
        return rho * solve_simplex_qp(P, w, np.ones(m + 1, dtype=bool)).z[:m]

    def feasible_step(self, rho: float, c: Array) -> tuple[Array, Array]:
        """The minimiser that reaches the constraints, with its multipliers.

        Where the linearised constraints contradict each other, that of the strongest
        penalty; rho is where the search for the penalty starts.
        """
        mu = _active_multipliers(self._gram, c + self._pull)
        if mu is not None:
            return self.free - mu.dot(self._normals), mu
        steepness, size = float(self._gram.diagonal().max()), float(np.abs(c).max())
        strongest = STRONGEST * max(size, TINY)
        rho = min(max(rho, size / max(steepness, TINY), TINY), strongest)
        while True:
            p, mu = self.step(rho, c)
            reached = float((c + self.J @ p).max()) <= CLOSE * size
            if reached or mu.sum() < FULL * rho or not rho < strongest:
                return p, mu
            rho *= STRONGER


class Plan(NamedTuple):
    """The next step from a place, made before anything is evaluated."""

    model: Model
    p: Array
    mu: Array
    aim: Array
    ahead: float
    """The merit that the model promises."""
    optimum: float
    """What ``(1/2)|d|^2`` would be at the nearest point of the boundary."""


def _active_multipliers(gram: Array, b: Array) -> Array | None:
    """The dual solution ``mu >= 0, b - gram mu <= 0, complementary``, if it is easy.

    Solves for the constraints believed active and corrects the belief; None if that
    does not settle, as with equal or contradictory constraints.
    """
    if len(b) == 1:
        steepness, need = gram.item(), b.item()
        easy = steepness > 0 or need <= 0
        return np.array([max(need, 0.0) / max(steepness, TINY)]) if easy else None
    close = CLOSE * float(np.abs(b).max())
    active = b > 0
    for _ in range(GUESSES):
        i, mu = np.flatnonzero(active), np.zeros(len(b))
        try:
            mu[i] = np.linalg.solve(gram[i[:, None], i], b[i])
        except np.linalg.LinAlgError:
            return None
        left = b - gram @ mu
        believed = np.where(active, mu > 0, left > close)
        if (believed == active).all():
            return mu if left.max() <= close else None
        active = believed
    return None
