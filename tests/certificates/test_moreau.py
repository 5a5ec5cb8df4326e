"""The Moreau residual: closed forms, clarabel, and claims that turn out false."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj import InfeasibleError, InvalidProblemError, NonFiniteError
from oneproj.certificates.proximal import moreau_residual
from oneproj.vectors import snapshot

FEW = settings(max_examples=8, derandomize=True, deadline=None, database=None)


def on_interval(
    x: float,
    f: Callable[[Tensor], Tensor],
    *,
    top: float = 0.25,
    dtype: torch.dtype = torch.float64,
    **options: Any,  # noqa: ANN401
) -> oneproj.Problem:
    """f over {-1 <= w <= top}, at the point x."""
    w = torch.tensor([x], dtype=dtype, requires_grad=True)
    return oneproj.Problem(
        w,
        oneproj.function(lambda: f(w).sum()),
        {"top": oneproj.function(w.sum) <= top},
        **{"radius": 1.0} | options,
    )


@pytest.mark.parametrize(
    ("x", "ell", "proximal"),
    [
        (0.0, 1.0, -0.5),  # |y + 2| has slope 1 here: y = x - 1/(2 ell)
        (0.0, 10.0, -0.05),
        (0.0, 0.1, -1.0),  # the step -5 ends at the ball
        (0.25, 1.0, -0.25),
    ],
)
def test_a_slope_by_hand(x: float, ell: float, proximal: float) -> None:
    problem = on_interval(x, lambda w: (w + 2.0).abs())
    measure = moreau_residual(problem, weak_convexity=ell)
    assert measure.value == pytest.approx(2 * ell * abs(x - proximal), abs=1e-7)
    assert measure.details["proximal point"][0].item() == pytest.approx(
        proximal, abs=1e-7
    )


@pytest.mark.parametrize(
    ("x", "ell", "proximal"),
    [
        (0.0, 1.0, 0.1),  # |y - 0.1|: the kink is reached
        (0.0, 10.0, 0.05),  # and here it is not
        (-0.5, 1.0, 0.0),
        (0.2, 2.0, 0.1),
    ],
)
def test_a_kink_by_hand(x: float, ell: float, proximal: float) -> None:
    problem = on_interval(x, lambda w: (w - 0.1).abs())
    measure = moreau_residual(problem, weak_convexity=ell)
    assert measure.value == pytest.approx(2 * ell * abs(x - proximal), abs=2e-7)
    assert measure.details["multipliers"]["top"] == pytest.approx(0.0, abs=1e-6)


def test_an_active_constraint_and_its_multiplier() -> None:
    # min -3y + (y - 0)^2 with y <= 0.25: at 0.25 the slope is -2.5, so mu = 2.5.
    measure = moreau_residual(on_interval(0.0, lambda w: -3.0 * w), weak_convexity=1.0)
    assert measure.value == pytest.approx(0.5, abs=1e-9)
    assert measure.details["multipliers"]["top"] == pytest.approx(2.5, abs=1e-6)
    assert measure.details["the safeguard ball is active"] is False


def test_a_weakly_convex_objective_by_hand() -> None:
    # -y^2/2 + 2(y - x)^2 with ell = 2 is smallest at 4x/3, if that is allowed.
    problem = on_interval(0.15, lambda w: -0.5 * w.square())
    measure = moreau_residual(problem, weak_convexity=2.0)
    assert measure.value == pytest.approx(4.0 * 0.05, abs=1e-9)


def test_an_infeasible_point_is_judged_too() -> None:
    # At x = 1 with f = 0 the proximal point is the projection 0.25.
    measure = moreau_residual(on_interval(1.0, lambda w: 0.0 * w), weak_convexity=1.0)
    assert measure.value == pytest.approx(1.5, abs=1e-9)
    assert measure.details["worst residual of the proximal point"] <= 0


def test_it_vanishes_at_a_stationary_point_on_the_boundary() -> None:
    measure = moreau_residual(on_interval(0.25, lambda w: -w), weak_convexity=1.0)
    assert measure.value == pytest.approx(0.0, abs=1e-8)
    assert measure.error <= 1e-7


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 10),
    constraints=st.integers(0, 4),
    kinks=st.booleans(),
    split=st.booleans(),
    radius=st.sampled_from([0.3, 2.0]),
)
def test_agrees_with_clarabel(
    build: Callable[..., Any],
    seed: int,
    n: int,
    constraints: int,
    radius: float,
    **options: bool,
) -> None:
    case = build(seed, n, constraints=constraints, radius=radius, **options)
    measure = moreau_residual(case.problem, weak_convexity=1.0)
    assert measure.error <= 1e-5 * max(1.0, measure.value)
    y = torch.cat(measure.details["proximal point"]).numpy()
    reference = case.proximal_point(1.0)
    # Feasible, and not worse than the reference beyond what it gives away itself.
    assert case.worst(y) <= 1e-14
    assert np.linalg.norm(y) <= radius * (1 + 1e-14)
    assert case.value(y, 1.0) <= case.value(reference, 1.0) + 1e-6
    exact = 2.0 * np.linalg.norm(case.x - reference)
    assert measure.value == pytest.approx(exact, abs=measure.error + 1e-3)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), ell=st.floats(1.0, 20.0))
def test_the_error_is_honest_where_the_solution_is_known(
    build: Callable[..., Any], seed: int, n: int, ell: float
) -> None:
    # Without constraints the proximal point solves (A + 2 ell) y = 2 ell x - b.
    case = build(seed, n, constraints=0, radius=100.0)
    measure = moreau_residual(case.problem, weak_convexity=ell)
    y = np.linalg.solve(case.A + 2 * ell * np.eye(n), 2 * ell * case.x - case.b)
    exact = 2 * ell * np.linalg.norm(case.x - y)
    assert abs(measure.value - exact) <= measure.error + 1e-13
    assert measure.error <= 1e-6 * exact


def test_stopped_early_the_error_is_still_a_bound(build: Callable[..., Any]) -> None:
    case = build(11, 6, constraints=3, kinks=True)
    exact = moreau_residual(case.problem, weak_convexity=1.0)
    for k in (0, 1, 5, 20):
        early = moreau_residual(case.problem, weak_convexity=1.0, max_iterations=k)
        assert abs(early.value - exact.value) <= early.error + exact.error
        assert early.error >= exact.error


def test_the_measure_bounds_the_subgradient_at_the_proximal_point(
    build: Callable[..., Any],
) -> None:
    # eq. moreau-intuition, for a smooth f: dist(0, grad f(y) + N_C(y)) <= S.
    case = build(5, 6, constraints=2)
    measure = moreau_residual(case.problem, weak_convexity=1.0)
    with torch.no_grad():
        case.problem.parameters[0].copy_(measure.details["proximal point"][0])
    residual = oneproj.certify(case.problem)["KKT residual"].value
    assert residual <= measure.value + 1e-5


@pytest.mark.parametrize("constraints", [0, 2])
def test_float32_agrees_with_float64(
    build: Callable[..., Any], constraints: int
) -> None:
    options = {"constraints": constraints, "kinks": True, "split": True}
    single = build(7, 3, dtype=torch.float32, **options)
    double = build(7, 3, **options)
    a = moreau_residual(single.problem, weak_convexity=1.0)
    b = moreau_residual(double.problem, weak_convexity=1.0)
    assert a.value == pytest.approx(b.value, abs=a.error + b.error)
    assert a.error <= 2e-2
    assert a.details["proximal point"][0].dtype == torch.float32
    assert "violation" not in a.details


def test_work_is_counted() -> None:
    calls = {"f": 0, "c": 0}
    w = torch.tensor([0.3, 0.2], dtype=torch.float64, requires_grad=True)

    def count(which: str, value: Tensor) -> Tensor:
        calls[which] += 1
        return value

    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: count("f", (w - 3.0).square().sum())),
        {"c": oneproj.function(lambda: count("c", w.square().sum())) <= 0.5},
        radius=2.0,
    )
    calls.update(f=0, c=0)
    measure = moreau_residual(problem, weak_convexity=1.0)
    assert measure.details["objective gradients"] == calls["f"]
    assert measure.details["constraint gradients"] == calls["c"]


def test_nothing_is_evaluated_outside_the_ball() -> None:
    # The objective is not even defined outside: sqrt(1 - |w|^2).
    w = torch.tensor([0.5, 0.0], dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: -((1.0 + 1e-9 - w.square().sum()).sqrt()) - 5 * w[0]),
        {},
        radius=1.0,
    )
    assert math.isfinite(moreau_residual(problem, weak_convexity=1.0).error)


@pytest.mark.parametrize("center", [None, [0.2, -0.1]])
def test_the_ball_counts_as_a_constraint(center: list[float] | None) -> None:
    w = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)
    c = torch.tensor(center or [0.0, 0.0], dtype=torch.float64)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: -100.0 * w[0]),
        {},
        radius=0.5,
        center=None if center is None else c,
    )
    measure = moreau_residual(problem, weak_convexity=1.0)
    # The minimiser of |y - z|^2 with z = (50, 0) is the projection of z on the ball.
    z = torch.tensor([50.0, 0.0], dtype=torch.float64) - c
    y = c + 0.5 * z / z.norm()
    found = measure.details["proximal point"][0]
    assert found.tolist() == pytest.approx(y.tolist(), abs=1e-6)
    assert measure.details["the safeguard ball is active"] is True


def test_a_false_weak_convexity_is_found_out() -> None:
    problem = on_interval(0.0, lambda w: -4.0 * w.square() + w)
    measure = moreau_residual(problem, weak_convexity=1.0)
    assert measure.error == math.inf
    assert "not weakly convex with weak_convexity = 1.0" in measure.details["violation"]


def test_a_constraint_that_is_not_convex_is_found_out() -> None:
    w = torch.tensor([0.9, 0.0], dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: w.square().sum()),
        {"hole": oneproj.function(lambda: w.square().sum()) >= 0.25},
        radius=1.0,
    )
    measure = moreau_residual(problem, weak_convexity=0.1)
    assert measure.error == math.inf
    assert measure.details["violation"] == "the constraint 'hole' is not convex"


def test_an_empty_feasible_set_is_refused() -> None:
    problem = on_interval(0.0, lambda w: w, top=-2.0)
    with pytest.raises(InfeasibleError, match=r"smallest worst residual seen is 1\.0"):
        moreau_residual(problem, weak_convexity=1.0)


@pytest.mark.parametrize("x", [0.1, 0.7])
def test_a_feasible_set_without_interior_is_refused(x: float) -> None:
    # w = 0.1 as two inequalities: g = |w - 0.1| is nowhere negative.
    w = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    pair = {
        "up": oneproj.function(w.sum) <= 0.1,
        "down": oneproj.function(w.sum) >= 0.1,
    }
    problem = oneproj.Problem(w, oneproj.function(w.sum), pair, radius=1.0)
    with pytest.raises(InfeasibleError, match="a feasible set with an interior"):
        moreau_residual(problem, weak_convexity=1.0)


@pytest.mark.parametrize("ell", [0.0, -1.0, math.nan, math.inf])
def test_bad_weak_convexity(ell: float) -> None:
    with pytest.raises(InvalidProblemError, match="weak_convexity must be one finite"):
        moreau_residual(on_interval(0.0, lambda w: w), weak_convexity=ell)


def test_nan_on_the_way_is_named_and_the_point_restored() -> None:
    problem = on_interval(0.0, lambda w: (w + 0.001).sqrt())
    bits = snapshot(problem.parameters)[0]
    with pytest.raises(NonFiniteError, match="'objective'"):
        moreau_residual(problem, weak_convexity=1.0)
    assert torch.equal(problem.parameters[0].detach(), bits)
