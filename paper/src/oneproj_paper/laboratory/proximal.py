"""The proximal points behind S_ell and R_{lambda,beta}, in closed form up to a root.

Both subproblems are strongly convex and their Lagrange multiplier is one number, on
which the constraint depends monotonically: bisection finds it to machine precision.
Nothing here shares code with Algorithm 1, whose outputs it judges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory.dent import DentedDisc
from oneproj_paper.laboratory.objectives import Saddle, length
from oneproj_paper.laboratory.shapes import Disc

HALVINGS = 64
"""Enough for the last bit of a multiplier."""
NEWTON_STEPS = 12
"""Twice what it takes here; `Witness.error` shows whether it was enough."""


def constrained_prox(f: Saddle, disc: Disc, x: Array, ell: float) -> Array:
    """Return Q_ell(x) = argmin over the disc of f(y) + ell |y - x|^2.

    See eq. moreau-measure. With a multiplier mu for ``(|y|^2 - r^2)/2 <= 0`` the
    coordinates separate, each has a closed form, and |y(mu)| decreases in mu.

    Example:
        >>> f = Saddle(curvature=0.0, kink=1.0, center=0.5, descent=0.5)
        >>> x = np.array([[-0.5, 0.0]])
        >>> constrained_prox(f, Disc(radius=0.9), x, ell=1.0)
        array([[0., 0.]])
    """
    c, k, a, descent = f.parameters

    def solve(mu: Array) -> Array:
        q = c + 2.0 * ell + mu
        free = (c * a + 2.0 * ell * x[..., 0]) / q - a
        y_1 = a + np.sign(free) * np.maximum(np.abs(free) - k / q, 0.0)
        return np.stack([y_1, 2 * ell * x[..., 1] / (2 * ell - descent + mu)], axis=-1)

    low = np.zeros(x.shape[:-1])
    # |y_2| < r / 2 and |y_1| < r / 2 beyond this multiplier, for x in the unit ball.
    high = np.full_like(low, 4.0 * (c + k + 2.0 * ell) / disc.radius)
    for _ in range(HALVINGS):
        mu = 0.5 * (low + high)
        y = solve(mu)
        outside = (y * y).sum(-1) > disc.radius**2
        low, high = np.where(outside, mu, low), np.where(outside, high, mu)
    free_y = solve(np.zeros_like(low))
    feasible = (free_y * free_y).sum(-1) <= disc.radius**2
    return np.where(feasible[..., None], free_y, solve(high))


@dataclass(frozen=True)
class Witness:
    """The witness of lem:nc-transfer at each point x.

    Attributes:
        y: Q_{lambda,beta}(x).
        v: the subgradient of f at y in the optimality condition.
        mu: the multiplier, in [0, lambda].
        residual: R_{lambda,beta}(x) = beta |x - y|.
        error: |v + mu grad g(y) + beta (y - x)|, which proves the point: H is strongly
            convex, so a y inside the ball with error 0 is its minimiser.
    """

    y: Array
    v: Array
    mu: Array
    residual: Array
    error: Array


def penalized_prox(
    f: Saddle, set_: DentedDisc, x: Array, *, strength: float, prox_weight: float
) -> Witness:
    """Return Q_{lambda,beta}(x) with its multiplier (eq. nc-residual, nc-witness).

    ``[g]_+ = max over theta in [0, 1] of theta g``, so the subproblem is a saddle point
    in (y, theta), and g(y(theta)) decreases in theta. For a fixed theta the kink of f
    leaves three cases: left of it, right of it, or on it.

    Example:
        >>> f = Saddle(curvature=0.0, kink=0.1, center=0.0, descent=0.1)
        >>> set_ = DentedDisc(radius=0.9, height=0.3, width=0.3, peak=1.0)
        >>> x = np.array([[0.0, -0.5]])
        >>> found = penalized_prox(f, set_, x, strength=2.0, prox_weight=20.0)
        >>> found.mu, found.error < 1e-12
        (array([0.]), array([ True]))
    """
    lam, beta = strength, prox_weight
    low, high = np.zeros(x.shape[:-1]), np.full(x.shape[:-1], lam)
    free, tight = _minimise(f, set_, x, low, beta), _minimise(f, set_, x, high, beta)
    is_free, is_tight = set_.value(free) <= 0, set_.value(tight) >= 0
    for _ in range(HALVINGS):
        mu = 0.5 * (low + high)
        outside = set_.value(_minimise(f, set_, x, mu, beta)) > 0
        low, high = np.where(outside, mu, low), np.where(outside, high, mu)
    mu = np.where(is_free, 0.0, np.where(is_tight, lam, high))
    y = _minimise(f, set_, x, mu, beta)
    pull = mu[..., None] * set_.gradient(y) + beta * (y - x)
    v = f.gradient(y)
    on_kink = y[..., 0] == f.center
    v[..., 0] = np.where(on_kink, np.clip(-pull[..., 0], -f.kink, f.kink), v[..., 0])
    residual = beta * length(y - x)
    error = length(v + pull)
    return Witness(y=y, v=v, mu=mu, residual=residual, error=error)


def _minimise(f: Saddle, set_: DentedDisc, x: Array, mu: Array, beta: float) -> Array:
    """Minimise f(y) + mu g(y) + beta/2 |y - x|^2 by Newton's method, case by case."""
    right = _newton(f, set_, x, mu, beta, f.kink)
    left = _newton(f, set_, x, mu, beta, -f.kink)
    on_kink = _newton(f, set_, x, mu, beta, None)
    is_right, is_left = right[..., 0] > f.center, left[..., 0] < f.center
    away = np.where(is_left[..., None], left, on_kink)
    return np.where(is_right[..., None], right, away)


def _newton(  # noqa: PLR0917 - the problem, the point, the multiplier, the case
    f: Saddle,
    set_: DentedDisc,
    x: Array,
    mu: Array,
    beta: float,
    slope: float | None,
) -> Array:
    """Newton's method with the kink replaced by ``slope``; None fixes y_1 = a."""
    c, _, a, descent = f.parameters
    bend = np.diag([c, -descent]) + beta * np.eye(2)
    y = x.copy()
    if slope is None:
        y[..., 0] = a
    for _ in range(NEWTON_STEPS):
        d = mu[..., None] * set_.gradient(y) + beta * (y - x)
        d[..., 0] += c * (y[..., 0] - a) + (slope or 0.0)
        d[..., 1] -= descent * y[..., 1]
        H = mu[..., None, None] * set_.hessian(y) + bend
        if slope is None:
            y[..., 1] -= d[..., 1] / H[..., 1, 1]
        else:
            y -= np.linalg.solve(H, d[..., None])[..., 0]
    return y
