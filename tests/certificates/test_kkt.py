"""KKT residual and multipliers against closed forms, nnls and clarabel's duals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj.certificates.kkt import complementarity, kkt_residual
from oneproj.errors import InvalidProblemError, NonFiniteError

FEW = settings(max_examples=10, derandomize=True, deadline=None, database=None)


def distance_problem(
    point: list[float],
    constraints: dict[str, Any],
    **ball: Any,  # noqa: ANN401
) -> oneproj.Problem:
    """min |w - (3, 4)|^2 / 2 seen from a point, constraints given as functions of w."""
    w = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    return oneproj.Problem(
        w,
        oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        {
            name: oneproj.function(lambda fn=fn: fn(w)) <= bound
            for name, (fn, bound) in constraints.items()
        },
        **ball,
    )


def test_at_the_solution_residual_zero_and_the_multiplier() -> None:
    # grad f = -(2.4, 3.2), grad c = (1.2, 1.6): mu = 2, and c = 0.
    problem = distance_problem([0.6, 0.8], {"disc": (lambda w: w.square().sum(), 1.0)})
    measure = kkt_residual(problem)
    assert measure.value == pytest.approx(0.0, abs=1e-14)
    assert measure.details["multipliers"]["disc"] == pytest.approx(2.0)
    assert measure.details["active"] == ["disc"]


def test_an_inactive_constraint_has_no_multiplier() -> None:
    problem = distance_problem([0.0, 0.5], {"disc": (lambda w: w.square().sum(), 1.0)})
    measure = kkt_residual(problem)
    assert measure.value == pytest.approx(math.hypot(3.0, 3.5))
    assert measure.details["relative"] == pytest.approx(1.0)
    assert measure.details["multipliers"] == {"disc": 0.0}
    assert measure.details["constraint gradients"] == 0
    assert measure.details["constraint passes"] == 1
    assert measure.details["objective gradients"] == 1


def test_the_tolerance_decides_what_is_active_and_complementarity_says_the_price() -> (
    None
):
    inside = {"disc": (lambda w: w.square().sum(), 1.0 + 1e-4)}
    problem = distance_problem([0.6, 0.8], inside)
    assert kkt_residual(problem).value == pytest.approx(4.0)
    measure = kkt_residual(problem, active_tolerance=1e-3)
    assert measure.value == pytest.approx(0.0, abs=1e-12)
    assert measure.details["complementarity"] == pytest.approx(2e-4)
    assert complementarity(measure).value == measure.details["complementarity"]


def test_a_violated_constraint_is_active_too() -> None:
    violated = {"disc": (lambda w: w.square().sum(), 0.5)}
    measure = kkt_residual(distance_problem([0.6, 0.8], violated))
    assert measure.value == pytest.approx(0.0, abs=1e-12)
    assert measure.details["complementarity"] == pytest.approx(2.0 * 0.5)


def test_the_ball_is_named_and_kept_apart() -> None:
    # Held by the ball alone: its multiplier is |grad f| = 4, the constraint's is 0.
    slack = {"floor": (lambda w: -w.sum(), 9.0)}
    measure = kkt_residual(distance_problem([0.6, 0.8], slack, radius=1.0))
    assert measure.value == pytest.approx(0.0, abs=1e-12)
    assert measure.details["the safeguard ball is active"] is True
    assert measure.details["ball multiplier"] == pytest.approx(4.0)
    assert measure.details["multipliers"] == {"floor": 0.0}
    inside = kkt_residual(distance_problem([0.6, 0.8], slack, radius=2.0))
    assert inside.details["the safeguard ball is active"] is False
    assert inside.value == pytest.approx(4.0)


def test_the_ball_around_a_center() -> None:
    center = torch.tensor([0.6, -0.2], dtype=torch.float64)
    problem = distance_problem([0.6, 0.8], {}, radius=1.0, center=center)
    measure = kkt_residual(problem)
    # grad f = (-2.4, -3.2); the normal (0, 1) takes the second entry.
    assert measure.value == pytest.approx(2.4)
    assert measure.details["relative"] == pytest.approx(2.4 / 4.0)
    assert measure.details["ball multiplier"] == pytest.approx(3.2)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(2, 8), split=st.booleans())
def test_is_least_squares_over_the_active_gradients(
    build: Callable[..., Any], seed: int, n: int, *, split: bool
) -> None:
    case = build(seed, n, constraints=4, split=split, reach=1.0)
    measure = kkt_residual(case.problem, active_tolerance=0.2)
    discs = [
        (2 * (case.x - a), np.sum((case.x - a) ** 2) - r**2) for a, r in case.discs
    ]
    halves = [(a, a @ case.x - offset) for a, offset in case.halfspaces]
    active = [gradient for gradient, c in discs + halves if c >= -0.2]
    f = case.A @ case.x + case.b
    residual = np.linalg.norm(f)
    if active:
        residual = scipy.optimize.nnls(np.array(active).T, -f)[1]
    assert measure.value == pytest.approx(residual, rel=1e-8, abs=1e-10)
    assert len(measure.details["active"]) == len(active)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6))
def test_multipliers_are_the_duals_of_clarabel(
    build: Callable[..., Any], seed: int, n: int
) -> None:
    case = build(seed, n, constraints=3)
    y = cp.Variable(n)
    S = np.linalg.cholesky(case.A + 1.1 * np.eye(n)).T
    c = [cp.sum_squares(y - a) <= r**2 for a, r in case.discs]
    c += [a @ y <= offset for a, offset in case.halfspaces]
    value = 0.5 * cp.sum_squares(S @ y) + 5 * case.b @ y
    cp.Problem(cp.Minimize(value), c).solve(solver=cp.CLARABEL)
    w = torch.tensor(y.value, requires_grad=True)
    names = ["disc 0", "disc 2", "half 1"]
    A, b = torch.tensor(case.A + 1.1 * np.eye(n)), torch.tensor(case.b)
    discs = [(torch.tensor(a), r) for a, r in case.discs]
    half = torch.tensor(case.halfspaces[0][0])
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: 0.5 * w @ A @ w + 5 * b @ w),
        {
            names[0]: oneproj.function(lambda: (w - discs[0][0]).square().sum())
            <= discs[0][1] ** 2,
            names[1]: oneproj.function(lambda: (w - discs[1][0]).square().sum())
            <= discs[1][1] ** 2,
            names[2]: oneproj.function(lambda: half @ w) <= 0.05,
        },
    )
    measure = kkt_residual(problem, active_tolerance=1e-5)
    assert measure.value <= 1e-3
    duals = dict(
        zip(names, (np.asarray(each.dual_value).item() for each in c), strict=True)
    )
    assert measure.details["multipliers"] == pytest.approx(duals, abs=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype(build: Callable[..., Any], dtype: torch.dtype) -> None:
    case = build(3, 5, constraints=2, dtype=dtype, reach=1.0)
    value = kkt_residual(case.problem, active_tolerance=0.5).value
    exact = kkt_residual(
        build(3, 5, constraints=2, reach=1.0).problem, active_tolerance=0.5
    ).value
    assert value == pytest.approx(exact, rel=1e-6)


def test_a_stationary_point_has_relative_residual_zero() -> None:
    measure = kkt_residual(distance_problem([3.0, 4.0], {}))
    assert (measure.value, measure.details["relative"]) == (0.0, 0.0)


def test_bad_tolerance_and_bad_point() -> None:
    problem = distance_problem([0.6, 0.8], {})
    with pytest.raises(InvalidProblemError, match="active_tolerance must be >= 0"):
        kkt_residual(problem, active_tolerance=-1.0)
    with torch.no_grad():
        problem.parameters[0][0] = math.nan
    with pytest.raises(NonFiniteError, match="a parameter of the point"):
        kkt_residual(problem)
