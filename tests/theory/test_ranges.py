"""Every refusal of a schedule, with the inequality and both numbers in the message."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oneproj import InvalidScheduleError, OneprojError
from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    convex_schedule,
    nonconvex_schedule,
)


def convex(radius: float = 1.0) -> ConvexConstants:
    return ConvexConstants(
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        boundary_slope=3.0,
        radius=radius,
    )


def nonconvex(radius: float = 1.0) -> NonconvexConstants:
    return NonconvexConstants(  # tube radius 0.5, lambda > 2, beta > 1 + 4 lambda
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        constraint_smoothness=4.0,
        boundary_slope=2.0,
        infeasible_slope=1.0,
        radius=radius,
    )


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        (0.0, r"^epsilon must be finite and > 0, got epsilon = 0\.0\.\n.*Try: "),
        (-0.5, r"^epsilon must be finite and > 0, got epsilon = -0\.5\.\n"),
        (math.nan, r"^epsilon must be finite and > 0, got epsilon = nan\.\n"),
        (math.inf, r"^epsilon must be finite and > 0, got epsilon = inf\.\n"),
        ("0.1", r"^epsilon must be a real number, got '0\.1' of type str\."),
        (True, r"^epsilon must be a real number, got True of type bool\."),
        (1e-200, r"^T <= 1e\+301 fails: T follows from .* / 1e-200\^2\.\n"),
    ],
)
def test_both_settings_refuse_what_is_no_target(epsilon: float, message: str) -> None:
    with pytest.raises(InvalidScheduleError, match=message) as caught:
        convex_schedule(convex(), epsilon)
    assert isinstance(caught.value, OneprojError)
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(), epsilon)


def test_the_convex_range_ends_at_one_on_the_unit_ball() -> None:
    assert convex_schedule(convex(), 1.0).within_theorem
    assert convex_schedule(convex(), np.float64(1)).epsilon == 1.0
    with pytest.raises(
        InvalidScheduleError, match=r"^epsilon <= 1 fails: 1\.01 > 1\.\n"
    ):
        convex_schedule(convex(), 1.01)
    # On a ball of radius 4 the measure is four times smaller.
    assert convex_schedule(convex(radius=4.0), 0.25).within_theorem
    message = r"^epsilon \* radius <= 1 fails: 1\.04 > 1\.\n.*/ radius"
    with pytest.raises(InvalidScheduleError, match=message):
        convex_schedule(convex(radius=4.0), 0.26)
    assert convex_schedule(convex(radius=0.25), 4.0).within_theorem


def test_the_nonconvex_range_excludes_one_on_the_unit_ball() -> None:
    assert nonconvex_schedule(nonconvex(), 0.99).within_theorem
    with pytest.raises(
        InvalidScheduleError, match=r"^epsilon < 1 fails: 1\.0 >= 1\.\n"
    ):
        nonconvex_schedule(nonconvex(), 1.0)
    message = r"^epsilon \* radius < 1 fails: 1\.0 >= 1\.\n"
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(radius=4.0), 0.25)
    assert nonconvex_schedule(nonconvex(radius=4.0), 0.24).within_theorem


@pytest.mark.parametrize("strength", [1.5, 2.0])
def test_a_strength_that_is_not_exact_is_refused(strength: float) -> None:
    message = (
        rf"^strength > gradient_bound / infeasible_slope fails: {strength} <= 2\.0"
    )
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(), 0.5, strength=strength)


@pytest.mark.parametrize("prox_weight", [5.0, 17.0])
def test_a_prox_weight_without_strong_convexity_is_refused(prox_weight: float) -> None:
    message = (
        r"^prox_weight > weak_convexity \+ strength \* constraint_smoothness fails: "
        rf"{prox_weight} <= 17\.0\.\n.*nc-parameters"
    )
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(), 0.5, strength=4.0, prox_weight=prox_weight)


@pytest.mark.parametrize("epsilon", [0.5, 0.75])
def test_a_target_above_the_feasibility_margin_is_refused(epsilon: float) -> None:
    message = (
        r"^epsilon < h_feas = strength \* infeasible_slope - gradient_bound fails: "
        rf"{epsilon} >= 0\.5\.\n.*lem:nc-transfer.*strength=None"
    )
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(), epsilon, strength=2.5)


def test_a_target_beyond_the_projection_tube_is_refused() -> None:
    # A tube of radius 1/64: beta * tube = 36/64 with beta = 36.
    constants = NonconvexConstants(
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        constraint_smoothness=4.0,
        boundary_slope=1 / 16,
        infeasible_slope=1.0,
    )
    message = (
        r"^epsilon < prox_weight \* boundary_slope / constraint_smoothness fails: "
        r"0\.6 >= 0\.5625\.\n.*unique.*prox_weight=None"
    )
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(constants, 0.6, strength=4.0, prox_weight=36.0)
    # The default prox weight is large enough by itself: 2 * 0.6 * 64.
    assert nonconvex_schedule(constants, 0.6).prox_weight == pytest.approx(76.8)


@pytest.mark.parametrize("name", ["strength", "prox_weight"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (0.0, r"{} must be finite and > 0, got {} = 0\.0"),
        (math.inf, r"{} must be finite and > 0, got {} = inf"),
        (math.nan, r"{} must be finite and > 0, got {} = nan"),
        ("4", r"{} must be a real number, got '4' of type str"),
    ],
)
def test_parameters_must_be_finite_and_positive(
    name: str, bad: float, message: str
) -> None:
    with pytest.raises(InvalidScheduleError, match=message.format(name, name)):
        nonconvex_schedule(nonconvex(), 0.5, **{name: bad})  # type: ignore[arg-type]


def test_an_unknown_search_is_refused_by_both() -> None:
    message = "inner_steps must be 'doubling' or 'smallest', got 'fewest'"
    with pytest.raises(InvalidScheduleError, match=message):
        convex_schedule(convex(), 0.5, inner_steps="fewest")  # type: ignore[arg-type]
    with pytest.raises(InvalidScheduleError, match=message):
        nonconvex_schedule(nonconvex(), 0.5, inner_steps="fewest")  # type: ignore[arg-type]
