"""Every number of both schedules, recomputed from the paper in decimal arithmetic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    Schedule,
    convex_schedule,
    gradient_mapping_bound,
    moreau_bound,
    nonconvex_schedule,
    penalty_residual_bound,
)

ROUNDING = 1e-11  # relative: a handful of double operations, cancellation in m included


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@st.composite
def convex_constants(draw: st.DrawFn) -> ConvexConstants:
    G_g = draw(powers(-2, 2))
    return ConvexConstants(
        weak_convexity=draw(powers(-4, 2)),
        gradient_bound=draw(powers(-4, 2)),
        constraint_gradient_bound=G_g,
        boundary_slope=G_g * draw(st.floats(0.01, 1.0)),
        initial_gap=draw(st.none() | st.floats(0.0, 10.0)),
    )


@st.composite
def nonconvex_constants(draw: st.DrawFn) -> NonconvexConstants:
    G_g, L_g = draw(powers(-2, 2)), draw(powers(-2, 2))
    slopes = st.floats(0.01, 0.99).map(lambda part: part * min(G_g, L_g))
    return NonconvexConstants(
        weak_convexity=draw(powers(-2, 2)),
        gradient_bound=draw(powers(-2, 2)),
        constraint_gradient_bound=G_g,
        constraint_smoothness=L_g,
        boundary_slope=draw(slopes),
        infeasible_slope=draw(slopes),
        initial_gap=draw(st.none() | st.floats(0.0, 10.0)),
    )


EPSILON = powers(-4, -0.01)
HOW = st.sampled_from(["doubling", "smallest"])


def close(value: float, exact: Decimal) -> bool:
    return abs(Decimal(value) - exact) <= Decimal(ROUNDING) * abs(exact)


def is_ceiling(T: int, exact: Decimal) -> bool:
    """T = max(2, ceil(exact)), where rounding may move `exact` across an integer."""
    slack = Decimal(ROUNDING) * exact
    return max(2, math.ceil(exact - slack)) <= T <= max(2, math.ceil(exact + slack))


def check_inner_steps(
    schedule: Schedule, error: Callable[[int], Decimal], target: Decimal, how: str
) -> None:
    """K satisfies the inequality, and the next smaller candidate does not."""
    K, slack = schedule.inner_steps, Decimal(ROUNDING)
    assert error(K) <= target * (1 + slack)
    assert close(schedule.inner_error, error(K))
    assert schedule.inner_error <= schedule.inner_error_target
    if how == "doubling":
        assert K.bit_count() == 1
    if K > 2:
        assert error(K // 2 if how == "doubling" else K - 1) > target * (1 - slack)


def exact_inner_bound(K: int, m: Decimal, G: Decimal, T: int) -> Decimal:
    """U_K(m, G, 1/(6 T)), eq. inner-bound."""
    return (m + G * G / m * (Decimal(K + 1).ln() + 2 * Decimal(6 * T).ln())) / K


@given(constants=convex_constants(), epsilon=EPSILON, how=HOW)
def test_convex_schedule_is_the_papers(
    constants: ConvexConstants, epsilon: float, how: str
) -> None:
    schedule = convex_schedule(constants, epsilon, inner_steps=how)  # type: ignore[arg-type]
    T, K = schedule.outer_steps, schedule.inner_steps
    ell, G_f = Decimal(constants.weak_convexity), Decimal(constants.gradient_bound)
    G_g = Decimal(constants.constraint_gradient_bound)
    sigma, eps = Decimal(constants.boundary_slope), Decimal(epsilon)
    gap = constants.initial_gap
    Delta = 2 * G_f if gap is None else Decimal(gap)
    # eq. convex-error-constants, convex-settings
    G_F = G_f + 4 * ell
    lam = 2 * (G_f + 4 * ell) / sigma
    G_H = G_F + lam * G_g
    # eq. cv-schedule
    assert is_ceiling(T, 1000 * ell * Delta / eps**2)
    target = min(eps**2 / (4000 * ell), G_F * eps / (60 * ell))
    assert close(schedule.inner_error_target, target)
    assert close(schedule.inner_failure, 1 / Decimal(6 * T))

    def e(K: int) -> Decimal:
        return exact_inner_bound(K, ell, G_H, T) + Decimal(2).ln() / K

    check_inner_steps(schedule, e, target, how)
    assert close(schedule.strength, lam)
    assert schedule.smoothing == 1 / K
    assert schedule.prox_weight == 2 * constants.weak_convexity
    assert schedule.strong_convexity == constants.weak_convexity
    assert (schedule.setting, schedule.penalty) == ("convex", "softplus")
    assert schedule.indices == range(1, T + 1)
    assert schedule.gradient_calls == T * K
    assert (schedule.epsilon, schedule.radius) == (epsilon, 1.0)
    assert schedule.constants is constants
    assert schedule.within_theorem


@given(
    constants=nonconvex_constants(),
    epsilon=EPSILON,
    how=HOW,
    factors=st.none() | st.tuples(st.floats(1.01, 50.0), st.floats(1.01, 50.0)),
)
def test_nonconvex_schedule_is_the_papers(
    constants: NonconvexConstants,
    epsilon: float,
    how: str,
    factors: tuple[float, float] | None,
) -> None:
    G_f, L_g = (
        Decimal(constants.gradient_bound),
        Decimal(constants.constraint_smoothness),
    )
    ell, G_g = Decimal(constants.weak_convexity), constants.constraint_gradient_bound
    s_out, eps = Decimal(constants.infeasible_slope), Decimal(epsilon)
    tube = Decimal(constants.boundary_slope) / L_g
    if factors is None:  # the defaults of the API
        lam = (G_f + max(G_f, 2 * eps)) / s_out
        beta = max(2 * (ell + lam * L_g), 2 * eps / tube)
        given_lam = given_beta = None
    else:  # anything inside eq. nc-parameters and the theorem's range
        lam = Decimal(given_lam := float((G_f + Decimal(factors[0]) * eps) / s_out))
        least = max(ell + lam * L_g, eps / tube)
        beta = Decimal(given_beta := factors[1] * float(least))
    schedule = nonconvex_schedule(
        constants,
        epsilon,
        strength=given_lam,
        prox_weight=given_beta,
        inner_steps=how,  # type: ignore[arg-type]
    )
    T, K = schedule.outer_steps, schedule.inner_steps
    assert close(schedule.strength, lam)
    assert close(schedule.prox_weight, beta)
    # eq. nc-parameters and the constants of app:nonconvex
    m = beta - ell - lam * L_g
    G_lam = G_f + lam * Decimal(G_g)
    G_H = G_lam + 2 * beta
    gap = constants.initial_gap
    Delta = 2 * G_lam if gap is None else Decimal(gap)
    assert close(schedule.strong_convexity, m)
    # eq. nc-schedule
    assert is_ceiling(T, 48 * beta * Delta / eps**2)
    target = eps**2 / (48 * beta * (1 + beta / m))
    assert close(schedule.inner_error_target, target)
    assert close(schedule.inner_failure, 1 / Decimal(6 * T))
    check_inner_steps(schedule, lambda K: exact_inner_bound(K, m, G_H, T), target, how)
    assert (schedule.setting, schedule.penalty) == ("nonconvex", "hinge")
    assert schedule.smoothing is None
    assert schedule.indices == range(T)
    assert schedule.gradient_calls == T * K
    assert schedule.within_theorem


def convex(**changes: float) -> ConvexConstants:
    values = {
        "weak_convexity": 1.0,
        "gradient_bound": 2.0,
        "constraint_gradient_bound": 4.0,
        "boundary_slope": 3.0,
    }
    return ConvexConstants(**values | changes)


def nonconvex(**changes: float) -> NonconvexConstants:
    values = {
        "weak_convexity": 1.0,
        "gradient_bound": 2.0,
        "constraint_gradient_bound": 4.0,
        "constraint_smoothness": 4.0,
        "boundary_slope": 2.0,
        "infeasible_slope": 1.0,
    }
    return NonconvexConstants(**values | changes)


def test_outer_steps_are_exact_where_doubles_are() -> None:
    # All factors are powers of two or small integers: no rounding at all.
    assert convex_schedule(convex(), 0.25).outer_steps == 1000 * 4 * 16
    assert convex_schedule(convex(initial_gap=0.0), 0.25).outer_steps == 2
    assert convex_schedule(convex(initial_gap=2**-20), 1.0).outer_steps == 2
    # lambda = 4, beta = 34, G_lambda = 18, Delta_lambda = 36
    assert nonconvex_schedule(nonconvex(), 0.25).outer_steps == 48 * 34 * 36 * 16


def test_the_second_term_of_the_convex_error_target_can_be_the_smaller() -> None:
    # G_F = 0.005, so G_F eps/(60 ell) < eps^2/(4000 ell) for eps > 66.7 G_F = 1/3.
    constants = convex(weak_convexity=0.001, gradient_bound=0.001)
    schedule = convex_schedule(constants, 0.5)
    assert schedule.inner_error_target == pytest.approx(0.005 * 0.5 / 0.06)
    assert schedule.inner_error_target < 0.5**2 / 4.0


RADII = st.sampled_from([1.0, 0.5, 3.0])


@given(constants=convex_constants(), epsilon=powers(-4, -0.5), R=RADII, how=HOW)
def test_the_convex_proof_sums_stay_below_a_sixth(
    constants: ConvexConstants, epsilon: float, R: float, how: str
) -> None:
    constants = dataclasses.replace(constants, radius=R)
    schedule = convex_schedule(constants, epsilon, inner_steps=how)  # type: ignore[arg-type]
    T, e = schedule.outer_steps, schedule.inner_error_target
    smooth = gradient_mapping_bound(constants, outer_steps=T, inner_error=e)
    nonsmooth = moreau_bound(constants, outer_steps=T, inner_error=e)
    sixth, slack = epsilon**2 / 6, 1 + ROUNDING
    assert smooth <= (12 / 1000 + 174 / 4000 + 39 / 3600) * epsilon**2 * slack < sixth
    assert (
        nonsmooth <= (48 / 1000 + 120 / 4000 + 156 / 3600) * epsilon**2 * slack < sixth
    )
    # Two failures of probability 1/6 each: all inner runs, and Markov's inequality.
    assert T * schedule.inner_failure <= (1 + ROUNDING) / 6
    assert (1 - T * schedule.inner_failure) * (1 - smooth / epsilon**2) > 2 / 3
    assert (1 - T * schedule.inner_failure) * (1 - nonsmooth / epsilon**2) > 2 / 3


@given(constants=nonconvex_constants(), epsilon=powers(-4, -0.5), R=RADII, how=HOW)
def test_the_nonconvex_proof_sum_stays_below_a_sixth(
    constants: NonconvexConstants, epsilon: float, R: float, how: str
) -> None:
    values = {"radius": R, "constraint_smoothness": constants.constraint_smoothness / R}
    constants = dataclasses.replace(constants, **values)  # type: ignore[arg-type]
    schedule = nonconvex_schedule(constants, epsilon, inner_steps=how)  # type: ignore[arg-type]
    T = schedule.outer_steps
    average = penalty_residual_bound(
        constants,
        strength=schedule.strength,
        prox_weight=schedule.prox_weight,
        outer_steps=T,
        inner_error=schedule.inner_error_target,
    )
    assert average <= epsilon**2 / 6 * (1 + ROUNDING)  # 1/12 + 1/12: no room to spare
    assert (1 - T * schedule.inner_failure) * (1 - average / epsilon**2) > 2 / 3
