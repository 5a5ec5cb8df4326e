"""The inequalities of the lemmas against their derivation, step by step."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj import InvalidScheduleError
from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    convex_inner_error,
    gradient_mapping_bound,
    inner_bound,
    moreau_bound,
    penalty_residual_bound,
)

SCALE = st.floats(1e-2, 1e2)
STEPS = st.integers(1, 10**9)


@given(K=STEPS, m=SCALE, G=SCALE, delta=st.floats(1e-12, 0.99))
def test_inner_bound_is_the_lemmas(K: int, m: float, G: float, delta: float) -> None:
    M, g, d = Decimal(m), Decimal(G), Decimal(delta)
    logs = Decimal(K + 1).ln() - 2 * d.ln()
    U = (M + g * g / M * logs) / K
    assert inner_bound(K, m, G, delta) == pytest.approx(float(U), rel=1e-12)
    e = U + Decimal(2).ln() / K
    assert convex_inner_error(K, m, G, delta) == pytest.approx(float(e), rel=1e-12)


def test_inner_bound_by_hand() -> None:
    # m = 2, G = 4, K = 1, delta = e^-1: (2 + 8 (log 2 + 2)) / 1.
    assert inner_bound(1, 2.0, 4.0, math.exp(-1)) == pytest.approx(18 + 8 * math.log(2))


@given(K=st.integers(1, 10**6), m=SCALE, G=SCALE, delta=st.floats(1e-9, 0.999))
def test_inner_bound_strictly_decreases_in_the_steps(
    K: int, m: float, G: float, delta: float
) -> None:
    assert inner_bound(K + 1, m, G, delta) < inner_bound(K, m, G, delta)
    assert convex_inner_error(K + 1, m, G, delta) < convex_inner_error(K, m, G, delta)


@given(K=STEPS, m=SCALE, G=SCALE, delta=st.floats(1e-9, 0.9), R=SCALE)
def test_inner_bound_is_a_function_error_the_same_in_all_coordinates(
    K: int, m: float, G: float, delta: float, R: float
) -> None:
    here = inner_bound(K, m, G, delta, radius=R)
    assert here == pytest.approx(inner_bound(K, m * R**2, G * R, delta), rel=1e-12)
    here = convex_inner_error(K, m, G, delta, radius=R)
    unit = convex_inner_error(K, m * R**2, G * R, delta)
    assert here == pytest.approx(unit, rel=1e-12)


@st.composite
def convex_constants(draw: st.DrawFn) -> ConvexConstants:
    G_g = draw(SCALE)
    return ConvexConstants(
        weak_convexity=draw(SCALE),
        gradient_bound=draw(SCALE),
        constraint_gradient_bound=G_g,
        boundary_slope=G_g * draw(st.floats(0.01, 1.0)),
        initial_gap=draw(st.none() | st.floats(0.0, 10.0)),
        radius=draw(SCALE),
    )


@given(constants=convex_constants(), T=STEPS, e=st.floats(0.0, 10.0))
def test_transfer_bounds_follow_from_the_steps_of_their_proof(
    constants: ConvexConstants, T: int, e: float
) -> None:
    # In the user's coordinates, where lem:convex-inner reads the same: the average
    # squared step, E^2 <= 2 e / ell and d <= e / G_F, then (a+b+c)^2 <= 3(a^2+b^2+c^2).
    ell, G_f = constants.weak_convexity, constants.gradient_bound
    R, gap = constants.radius, constants.initial_gap
    gap = 2 * G_f * R if gap is None else gap
    G_F = G_f + 4 * ell * R
    steps = gap / (ell * T) + (1 + G_f / G_F) * e / ell + (e / G_F) ** 2
    E2, d2 = 2 * e / ell, (e / G_F) ** 2
    nonsmooth = 3 * ell**2 * (4**2 * steps + 2**2 * E2 + 6**2 * d2)
    smooth = 3 * ell**2 * (2**2 * steps + 5**2 * E2 + 3**2 * d2)
    bound = moreau_bound(constants, outer_steps=T, inner_error=e)
    assert bound == pytest.approx(nonsmooth, rel=1e-11)
    bound = gradient_mapping_bound(constants, outer_steps=T, inner_error=e)
    assert bound == pytest.approx(smooth, rel=1e-11)


def nonconvex(**changes: float | None) -> NonconvexConstants:
    values: dict[str, Any] = {
        "weak_convexity": 1.0,
        "gradient_bound": 2.0,
        "constraint_gradient_bound": 4.0,
        "constraint_smoothness": 4.0,
        "boundary_slope": 2.0,
        "infeasible_slope": 1.0,
    }
    return NonconvexConstants(**values | changes)


@given(
    lam=SCALE,
    factor=st.floats(1.01, 50.0),
    T=STEPS,
    e=st.floats(0.0, 10.0),
    R=st.floats(0.6, 100.0),
    gap=st.none() | st.floats(0.0, 10.0),
)
def test_penalty_residual_bound_follows_from_the_steps_of_its_proof(
    *, lam: float, factor: float, T: int, e: float, R: float, gap: float | None
) -> None:
    constants = nonconvex(radius=R, initial_gap=gap)
    rho = 1.0 + 4.0 * lam
    beta = factor * rho
    gap = 2 * (2.0 + 4.0 * lam) * R if gap is None else gap
    steps = 2 * gap / (beta * T) + 2 * e / beta
    errors = 2 * e / (beta - rho)
    bound = penalty_residual_bound(
        constants, strength=lam, prox_weight=beta, outer_steps=T, inner_error=e
    )
    assert bound == pytest.approx(2 * beta**2 * (steps + errors), rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"K": 0}, r"K must be a whole number >= 1, got K = 0"),
        ({"K": 2.5}, r"K must be a whole number >= 1, got K = 2\.5"),
        ({"K": math.nan}, r"K must be a whole number >= 1, got K = nan"),
        ({"m": 0.0}, r"m must be finite and > 0, got m = 0\.0"),
        ({"m": math.nan}, r"m must be finite and > 0, got m = nan"),
        ({"G": -1.0}, r"G must be finite and > 0, got G = -1\.0"),
        ({"G": math.inf}, r"G must be finite and > 0, got G = inf"),
        ({"delta": 0.0}, r"0 < delta < 1 fails: delta = 0\.0"),
        ({"delta": 1.0}, r"0 < delta < 1 fails: delta = 1\.0"),
        ({"delta": math.nan}, r"0 < delta < 1 fails: delta = nan"),
        ({"radius": 0.0}, r"radius must be finite and > 0, got radius = 0\.0"),
    ],
)
def test_inner_bound_refuses_what_the_lemma_excludes(
    changes: dict[str, Any], message: str
) -> None:
    values: dict[str, Any] = {"K": 10, "m": 1.0, "G": 1.0, "delta": 0.1}
    with pytest.raises(InvalidScheduleError, match=message):
        inner_bound(**values | changes)


def test_average_bounds_refuse_impossible_runs() -> None:
    convex = ConvexConstants(
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        boundary_slope=3.0,
    )
    for bound in (gradient_mapping_bound, moreau_bound):
        with pytest.raises(
            InvalidScheduleError, match=r"outer_steps .* = 0\.\n.*cv-tra"
        ):
            bound(convex, outer_steps=0, inner_error=0.1)
        with pytest.raises(
            InvalidScheduleError, match=r"inner_error .* >= 0, got .*-1"
        ):
            bound(convex, outer_steps=5, inner_error=-1.0)
    with pytest.raises(
        InvalidScheduleError, match=r"outer_steps .* = 0\.\n.*nc-descent"
    ):
        penalty_residual_bound(
            nonconvex(), strength=1.0, prox_weight=9.0, outer_steps=0, inner_error=0.1
        )
    with pytest.raises(InvalidScheduleError, match=r"smoothness fails: 5\.0 <= 5\.0"):
        penalty_residual_bound(
            nonconvex(), strength=1.0, prox_weight=5.0, outer_steps=5, inner_error=0.1
        )
