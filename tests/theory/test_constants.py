"""The constants of the assumptions: derived numbers, rescaling, refusals."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj import InvalidProblemError, OneprojError
from oneproj.theory import ConvexConstants, NonconvexConstants

CONVEX = {
    "weak_convexity": 1.5,
    "gradient_bound": 2.0,
    "constraint_gradient_bound": 4.0,
    "boundary_slope": 3.0,
}
NONCONVEX = {
    **CONVEX,
    "constraint_smoothness": 5.0,
    "infeasible_slope": 0.5,
}
CASES = [
    *((ConvexConstants, CONVEX, name) for name in [*CONVEX, "radius"]),
    *((NonconvexConstants, NONCONVEX, name) for name in [*NONCONVEX, "radius"]),
]
SCALE = st.floats(1e-3, 1e3)


def test_convex_derived_constants_on_the_unit_ball() -> None:
    constants = ConvexConstants(**CONVEX)
    assert constants.proximal_lipschitz == 2.0 + 4 * 1.5
    assert constants.strength == 2 * 8.0 / 3.0
    assert constants.subproblem_gradient_bound == 8.0 + 16.0 / 3.0 * 4.0
    assert constants.gap_bound == 4.0


def test_nonconvex_derived_constants_on_the_unit_ball() -> None:
    constants = NonconvexConstants(**NONCONVEX)
    assert constants.tube_radius == 3.0 / 5.0
    assert constants.penalized_weak_convexity(6.0) == 1.5 + 30.0
    assert constants.penalized_lipschitz(6.0) == 2.0 + 24.0
    assert constants.subproblem_gradient_bound(6.0, 40.0) == 26.0 + 80.0
    assert constants.feasibility_margin(6.0) == 3.0 - 2.0
    assert constants.gap_bound(6.0) == 52.0


def test_a_given_gap_replaces_the_bound_even_when_it_is_zero() -> None:
    assert ConvexConstants(**CONVEX, initial_gap=0.0).gap_bound == 0.0
    assert NonconvexConstants(**NONCONVEX, initial_gap=0.25).gap_bound(6.0) == 0.25


@given(R=SCALE, gap=st.none() | st.floats(0.0, 10.0))
def test_derived_convex_constants_rescale_like_derivatives(
    R: float, gap: float | None
) -> None:
    here = ConvexConstants(**CONVEX, radius=R, initial_gap=gap)
    unit = here.on_unit_ball()
    assert unit.radius == 1.0
    assert unit.weak_convexity == pytest.approx(1.5 * R**2)
    assert unit.proximal_lipschitz == pytest.approx(R * here.proximal_lipschitz)
    assert unit.strength == pytest.approx(here.strength)
    assert unit.subproblem_gradient_bound == pytest.approx(
        R * here.subproblem_gradient_bound
    )
    assert unit.gap_bound == pytest.approx(here.gap_bound)


@given(R=SCALE, lam=SCALE, beta=SCALE, gap=st.none() | st.floats(0.0, 10.0))
def test_derived_nonconvex_constants_rescale_like_derivatives(
    R: float, lam: float, beta: float, gap: float | None
) -> None:
    values = NONCONVEX | {"constraint_smoothness": 5.0 / min(R, 1.0)}
    here = NonconvexConstants(**values, radius=R, initial_gap=gap)
    unit = here.on_unit_ball()
    assert unit.radius == 1.0
    assert unit.tube_radius == pytest.approx(here.tube_radius / R)
    rho = here.penalized_weak_convexity(lam)
    assert unit.penalized_weak_convexity(lam) == pytest.approx(R**2 * rho)
    G_H = here.subproblem_gradient_bound(lam, beta)
    assert unit.subproblem_gradient_bound(lam, beta * R**2) == pytest.approx(R * G_H)
    margin = here.feasibility_margin(lam)
    scale = lam * unit.infeasible_slope + unit.gradient_bound
    assert unit.feasibility_margin(lam) == pytest.approx(R * margin, abs=1e-12 * scale)
    assert unit.gap_bound(lam) == pytest.approx(here.gap_bound(lam))


def test_rescaled_constants_are_those_of_the_rescaled_functions() -> None:
    # f(x) = ell/2 |x - a|^2 and g(x) = |x - c|^2 - r^2 seen as functions of u,
    # x = c + R u, by differences: slopes and curvatures along a line.
    R, c, a, r, ell = 2.5, 0.7, -0.3, 1.0, 1.5
    values = NONCONVEX | {"constraint_smoothness": 2.0, "boundary_slope": 2.0 * r}
    unit = NonconvexConstants(**values, radius=R).on_unit_ball()
    h = 1e-3
    f = [0.5 * ell * (c + R * u - a) ** 2 for u in (-h, 0.0, h)]
    assert (f[0] - 2 * f[1] + f[2]) / h**2 == pytest.approx(unit.weak_convexity)
    g = [(R * u) ** 2 - r**2 for u in (-h, 0.0, h)]
    assert (g[0] - 2 * g[1] + g[2]) / h**2 == pytest.approx(unit.constraint_smoothness)
    g = [(R * (r / R + u)) ** 2 - r**2 for u in (-h, h)]
    assert (g[1] - g[0]) / (2 * h) == pytest.approx(unit.boundary_slope)


@pytest.mark.parametrize(("cls", "values", "name"), CASES)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_what_is_not_finite_and_positive_is_refused(
    cls: type, values: dict[str, float], name: str, bad: float
) -> None:
    pattern = rf"^{cls.__name__}: {name} must be finite and > 0, got {name} = {bad}\.\n"
    with pytest.raises(InvalidProblemError, match=pattern) as caught:
        cls(**values | {name: bad})
    assert "Try: " in str(caught.value)
    assert isinstance(caught.value, OneprojError)


@pytest.mark.parametrize(("cls", "values", "name"), CASES)
@pytest.mark.parametrize("bad", ["1", None, True, 1j, np.ones(1)])
def test_what_is_not_a_number_is_refused(
    cls: type, values: dict[str, float], name: str, bad: object
) -> None:
    pattern = rf"{name} must be a real number, got .* of type {type(bad).__name__}"
    with pytest.raises(InvalidProblemError, match=pattern):
        cls(**values | {name: bad})


@pytest.mark.parametrize(
    ("cls", "values"), [(ConvexConstants, CONVEX), (NonconvexConstants, NONCONVEX)]
)
@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
def test_a_gap_must_be_finite_and_not_negative(
    cls: type, values: dict[str, float], bad: float
) -> None:
    with pytest.raises(
        InvalidProblemError, match="initial_gap must be finite and >= 0"
    ):
        cls(**values, initial_gap=bad)


@pytest.mark.parametrize(
    ("cls", "values", "name"),
    [
        (ConvexConstants, CONVEX, "boundary_slope"),
        (NonconvexConstants, NONCONVEX, "boundary_slope"),
        (NonconvexConstants, NONCONVEX, "infeasible_slope"),
    ],
)
def test_a_slope_above_the_gradient_bound_is_refused(
    cls: type, values: dict[str, float], name: str
) -> None:
    assert getattr(cls(**values | {name: 4.0}), name) == 4.0
    pattern = rf"{name} <= constraint_gradient_bound fails: 4\.5 > 4\.0"
    with pytest.raises(InvalidProblemError, match=pattern):
        cls(**values | {name: 4.5})


@pytest.mark.parametrize("name", ["boundary_slope", "infeasible_slope"])
def test_a_slope_that_the_smoothness_cannot_produce_is_refused(name: str) -> None:
    values = NONCONVEX | {"boundary_slope": 1.0, "constraint_smoothness": 1.5}
    assert NonconvexConstants(**values | {name: 2.9}, radius=2.0)
    pattern = rf"{name} < constraint_smoothness \* radius fails: 3\.0 >= 3\.0"
    with pytest.raises(InvalidProblemError, match=pattern):
        NonconvexConstants(**values | {name: 3.0}, radius=2.0)


@given(r=st.floats(0.01, 0.99), R=SCALE)
def test_a_ball_inside_the_ball_has_admissible_constants(r: float, R: float) -> None:
    # g(x) = |x|^2 - (r R)^2 on the ball of radius R: slopes 2 r R, L_g = 2.
    constants = NonconvexConstants(
        weak_convexity=1.0,
        gradient_bound=1.0,
        constraint_gradient_bound=2 * R,
        constraint_smoothness=2.0,
        boundary_slope=2 * r * R,
        infeasible_slope=2 * r * R,
        radius=R,
    )
    assert constants.tube_radius == pytest.approx(r * R)


def test_constants_are_frozen_keyword_only_and_plain_floats() -> None:
    constants = ConvexConstants(
        weak_convexity=1,
        gradient_bound=np.float32(2.0),
        constraint_gradient_bound=np.int64(4),
        boundary_slope=3,
    )
    assert all(type(v) is float for v in dataclasses.asdict(constants).values() if v)
    with pytest.raises(dataclasses.FrozenInstanceError):
        constants.radius = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        ConvexConstants(1.0, 2.0, 4.0, 3.0)  # type: ignore[misc]
