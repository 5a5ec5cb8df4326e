"""What a theorem asks of a run, all but K: the two schedule equations.

Implements eq. cv-schedule with eq. convex-settings (the paper's app:convex-schedule)
and eq. nc-schedule with eq. nc-parameters (app:nc-schedule). T and e_* are computed on
the unit ball, for u with x = c + R u and the target R epsilon; the rest is returned in
the user's coordinates (`schedules` says why).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from oneproj.theory.budgets import find_outer_steps
from oneproj.theory.constants import ConvexConstants, NonconvexConstants
from oneproj.theory.ranges import (
    check_convex_range,
    check_nonconvex_range,
    checked_positive,
)


class Requirements(NamedTuple):
    """The numbers that the theorem fixes (T from below, e_* from above)."""

    setting: Literal["convex", "nonconvex"]
    epsilon: float
    outer_steps: int
    inner_error_target: float
    prox_weight: float
    strong_convexity: float
    penalty: Literal["softplus", "hinge"]
    strength: float
    first_index: Literal[0, 1]


def convex_requirements(constants: ConvexConstants, epsilon: float) -> Requirements:
    """Evaluate eq. cv-schedule and eq. convex-settings.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> convex_requirements(constants, 0.5).inner_error_target
        6.25e-05
    """
    eps = checked_positive("epsilon", epsilon)
    check_convex_range(constants, eps)
    unit, eps_u = constants.on_unit_ball(), eps * constants.radius
    ell, G_F = unit.weak_convexity, unit.proximal_lipschitz
    return Requirements(
        setting="convex",
        epsilon=eps,
        outer_steps=find_outer_steps(1000.0 * ell * unit.gap_bound, eps_u),
        inner_error_target=min(
            eps_u * eps_u / (4000.0 * ell), G_F * eps_u / (60.0 * ell)
        ),
        prox_weight=2.0 * constants.weak_convexity,
        strong_convexity=constants.weak_convexity,
        penalty="softplus",
        strength=constants.strength,
        first_index=1,
    )


def nonconvex_requirements(
    constants: NonconvexConstants,
    epsilon: float,
    strength: float | None,
    prox_weight: float | None,
) -> Requirements:
    """Evaluate eq. nc-schedule for a strength and prox weight in range.

    None stands for twice what eq. nc-parameters and the theorem's range ask for.

    Example:
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ... )
        >>> nonconvex_requirements(constants, 0.5, 4.0, None).prox_weight
        34.0
    """
    eps = checked_positive("epsilon", epsilon)
    if strength is None:
        G_f = constants.gradient_bound
        strength = (G_f + max(G_f, 2.0 * eps)) / constants.infeasible_slope
    lam = checked_positive("strength", strength)
    rho = constants.penalized_weak_convexity(lam)
    if prox_weight is None:
        prox_weight = max(2.0 * rho, 2.0 * eps / constants.tube_radius)
    beta = checked_positive("prox_weight", prox_weight)
    check_nonconvex_range(constants, eps, lam, beta)
    m, R = constants.strong_convexity(lam, beta), constants.radius
    gap, eps_u, beta_u = constants.gap_bound(lam), eps * R, beta * R * R
    return Requirements(
        setting="nonconvex",
        epsilon=eps,
        outer_steps=find_outer_steps(48.0 * beta_u * gap, eps_u),
        inner_error_target=eps_u * eps_u / (48.0 * beta_u * (1.0 + beta / m)),
        prox_weight=beta,
        strong_convexity=m,
        penalty="hinge",
        strength=lam,
        first_index=0,
    )
