"""The inequalities behind the theorems, as functions of the constants.

Implements the paper's appendix "A High-Probability Inner-Solver Bound" (lem:inner) and
the averaged bounds of its two proof appendices (lem:cv-transfer, lem:nc-descent). The
schedules choose T and K so that these stay below epsilon^2 / 6.

An average bound is a bound on the mean of the *squared* measure over the T outer
iterates, in the user's coordinates: a measure in u, where x = c + R u, is R times the
measure in x, so the bound of the unit ball is divided by R^2.
"""

from __future__ import annotations

import math
from numbers import Integral

from oneproj.errors import InvalidScheduleError
from oneproj.theory.constants import (
    ConvexConstants,
    NonconvexConstants,
    checked_number,
)


def _require_steps(name: str, value: int, why: str) -> None:
    """Refuse a count that is not a positive whole number."""
    if not isinstance(value, Integral) or value < 1:
        message = f"{name} must be a whole number >= 1, got {name} = {value}.\n{why}"
        raise InvalidScheduleError(message)


def inner_bound(
    K: int, m: float, G: float, delta: float, *, radius: float = 1.0
) -> float:
    """Bound the error of one inner run with probability 1 - delta (lem:inner).

    After K steps eta_s = 2 / (m (s + 1)) on an m-strongly convex H over a ball, with
    stochastic subgradients of norm at most G, the average z of z_1..z_K satisfies

        H(z) - min H <= U_K = (m R^2 + G^2/m (log(K + 1) + 2 log(1/delta))) / K

    with probability at least 1 - delta (eq. inner-bound, where R = 1). U_K strictly
    decreases in K: K/(K + 1) <= log(K + 1) makes its derivative negative.

    Args:
        K: inner steps.
        m: strong convexity of H.
        G: bound on the norm of every stochastic subgradient of H.
        delta: probability of failure, in (0, 1).
        radius: R, the radius of the ball.

    Raises:
        InvalidScheduleError: an argument lies outside the lemma.

    Example:
        >>> round(inner_bound(1000, m=1.0, G=2.0, delta=0.05), 6)
        0.052601
    """
    why = "The inner bound (lem:inner, eq. inner-bound) needs it."
    _require_steps("K", K, why)
    for name, value in (("m", m), ("G", G), ("radius", radius)):
        checked_number(name, value, why)
    if not 0.0 < delta < 1.0:
        message = (
            f"0 < delta < 1 fails: delta = {delta}.\n"
            "delta is the probability with which the inner bound may fail (lem:inner)."
        )
        raise InvalidScheduleError(message)
    logarithms = math.log(K + 1) + 2.0 * math.log(1.0 / delta)
    return (m * radius * radius + G * G / m * logarithms) / K


def convex_inner_error(
    K: int, ell: float, G: float, delta: float, *, radius: float = 1.0
) -> float:
    """Return e_K = U_K(ell, G_H, delta) + log(2)/K (eq. convex-error-constants).

    The second term is what the softplus with smoothing 1/K adds to the hinge, so e_K
    bounds the error of the exact-penalty subproblem (lem:convex-inner).

    Example:
        >>> round(convex_inner_error(1000, ell=1.0, G=2.0, delta=0.05), 6)
        0.053294
    """
    return inner_bound(K, ell, G, delta, radius=radius) + math.log(2.0) / K


def gradient_mapping_bound(
    constants: ConvexConstants, *, outer_steps: int, inner_error: float
) -> float:
    """Bound the mean of G_ell(p_t)^2, t = 1..T, for a smooth f (lem:cv-transfer).

    12 ell Delta_f / T + (162 + 12 G_f/G_F) ell e + 39 ell^2 e^2 / G_F^2
    (eq. cv-smooth-transfer) when every inner run has error at most e.

    Args:
        constants: the constants of ass:convex with ass:convex-smooth.
        outer_steps: T.
        inner_error: e.

    Example:
        >>> from oneproj.theory import ConvexConstants
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> gradient_mapping_bound(constants, outer_steps=100, inner_error=0.0)
        0.48
    """
    return _transfer(constants, outer_steps, inner_error, (12.0, 162.0, 12.0, 39.0))


def moreau_bound(
    constants: ConvexConstants, *, outer_steps: int, inner_error: float
) -> float:
    """Bound the mean of S_ell(p_t)^2, t = 1..T, for a nonsmooth f (lem:cv-transfer).

    48 ell Delta_f / T + (72 + 48 G_f/G_F) ell e + 156 ell^2 e^2 / G_F^2
    (eq. cv-nonsmooth-transfer) when every inner run has error at most e.

    Args:
        constants: the constants of ass:convex.
        outer_steps: T.
        inner_error: e.

    Example:
        >>> from oneproj.theory import ConvexConstants
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> moreau_bound(constants, outer_steps=100, inner_error=0.0)
        1.92
    """
    return _transfer(constants, outer_steps, inner_error, (48.0, 72.0, 48.0, 156.0))


def _transfer(
    constants: ConvexConstants,
    T: int,
    e: float,
    coefficients: tuple[float, float, float, float],
) -> float:
    """Evaluate the right-hand side that the two bounds of lem:cv-transfer share."""
    _require_run(T, e, "lem:cv-transfer")
    unit = constants.on_unit_ball()
    ell, G_f, G_F = unit.weak_convexity, unit.gradient_bound, unit.proximal_lipschitz
    a, b, c, d = coefficients
    bound = (
        a * ell * unit.gap_bound / T
        + (b + c * G_f / G_F) * ell * e
        + d * (ell * e / G_F) ** 2
    )
    return bound / (constants.radius * constants.radius)


def penalty_residual_bound(
    constants: NonconvexConstants,
    *,
    strength: float,
    prox_weight: float,
    outer_steps: int,
    inner_error: float,
) -> float:
    """Bound the mean of R_{lambda,beta}(x_t)^2, t = 0..T-1 (lem:nc-descent).

    4 beta Delta_lambda / T + 4 beta (1 + beta/m) e, with m = beta - ell - lambda L_g,
    when every inner run has error at most e.

    Args:
        constants: the constants of ass:nonconvex.
        strength: lambda.
        prox_weight: beta, larger than ell + lambda L_g (eq. nc-parameters).
        outer_steps: T.
        inner_error: e.

    Example:
        >>> from oneproj.theory import NonconvexConstants
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ...     initial_gap=1.0,
        ... )
        >>> penalty_residual_bound(
        ...     constants,
        ...     strength=4.0,
        ...     prox_weight=34.0,
        ...     outer_steps=136,
        ...     inner_error=0.0,
        ... )
        1.0
    """
    _require_run(outer_steps, inner_error, "lem:nc-descent")
    m = constants.strong_convexity(strength, prox_weight)
    beta, e = prox_weight, inner_error
    # The factors R^2 of beta_u = beta R^2 and 1/R^2 of the squared measure cancel.
    gap = constants.gap_bound(strength)
    return 4.0 * beta * gap / outer_steps + 4.0 * beta * (1.0 + beta / m) * e


def _require_run(T: int, e: float, source: str) -> None:
    """Refuse counts and errors that no run can have."""
    why = f"The average bound of {source} needs it."
    _require_steps("outer_steps", T, why)
    checked_number("inner_error", e, why, zero=True)
