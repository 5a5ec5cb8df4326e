"""The penalty residual and its witness: closed forms, clarabel, grids, appendix C."""

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
from oneproj import InvalidScheduleError, Measure, NonFiniteError
from oneproj.certificates.assumptions import infeasible_slope
from oneproj.certificates.proximal import penalty_residual
from oneproj.theory import NonconvexConstants
from oneproj.vectors import snapshot
from oneproj_paper.laboratory.obstruction import (
    BOUNDARY_SLOPE,
    SMOOTHNESS,
    WEAK_CONVEXITY,
    obstruction_problem,
)

FEW = settings(max_examples=8, derandomize=True, deadline=None, database=None)


def claims(**changes: float) -> NonconvexConstants:
    values = {
        "weak_convexity": 1.0,
        "gradient_bound": 8.0,
        "constraint_gradient_bound": 8.0,
        "constraint_smoothness": 2.0,
        "boundary_slope": 0.5,
        "infeasible_slope": 0.5,
        "radius": 2.0,
    }
    return NonconvexConstants(**values | changes)


def disc_at(point: list[float], slope: list[float], **options: Any) -> oneproj.Problem:  # noqa: ANN401
    """<slope, w> with |w|^2 <= 1/4 in the ball of radius 2."""
    w = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    v = torch.tensor(slope, dtype=torch.float64)
    return oneproj.Problem(
        w,
        oneproj.function(lambda: v @ w),
        {"disc": oneproj.function(lambda: w.square().sum()) <= 0.25},
        **{"radius": 2.0} | options,
    )


def judged(problem: oneproj.Problem, lam: float, beta: float, **k: float) -> Measure:
    return penalty_residual(problem, claims(**k), strength=lam, prox_weight=beta)


def test_inside_it_is_the_gradient() -> None:
    # y = x - v/beta stays inside the disc: R = |v|, mu = 0.
    measure = judged(disc_at([0.1, 0.0], [0.3, 0.4]), lam=2.0, beta=10.0)
    assert measure.value == pytest.approx(0.5, abs=1e-9)
    assert measure.details["multipliers"]["disc"] == pytest.approx(0.0, abs=1e-8)
    assert measure.details["v"][0].tolist() == pytest.approx([0.3, 0.4], abs=1e-8)


def test_outside_the_full_penalty_acts() -> None:
    # At x = (1.5, 0), f = 0: y solves 2 lam y + beta (y - x) = 0, y = 10 * 1.5 / 12.
    measure = judged(disc_at([1.5, 0.0], [0.0, 0.0]), lam=1.0, beta=10.0)
    assert measure.details["witness"][0].tolist() == pytest.approx(
        [1.25, 0.0], abs=1e-8
    )
    assert measure.value == pytest.approx(2.5, abs=1e-7)
    assert measure.details["multipliers"]["disc"] == pytest.approx(1.0, abs=1e-8)
    assert measure.details["the witness is feasible"] is False


def test_on_the_boundary_the_multiplier_lies_between() -> None:
    # At x = (0.6, 0) the penalty stops at 0.5, where 2 mu 0.5 = beta 0.1: mu = 1.
    measure = judged(disc_at([0.6, 0.0], [0.0, 0.0]), lam=2.0, beta=10.0)
    assert measure.value == pytest.approx(1.0, abs=1e-6)
    assert measure.details["multipliers"]["disc"] == pytest.approx(1.0, abs=1e-5)
    assert measure.details["mu g at the witness"] == pytest.approx(0.0, abs=1e-6)
    assert measure.details["the witness is feasible"] is True
    assert measure.details["distance of v from the gradient of f"] <= 1e-5


def test_the_ball_stops_the_step_and_is_named() -> None:
    # Pushed outwards with slope 30 against 2 lam |y| <= 4: held by the ball at (1, 0).
    problem = disc_at([0.9, 0.0], [-30.0, 0.0], radius=1.0)
    measure = judged(problem, lam=1.0, beta=10.0, gradient_bound=30.0, radius=1.0)
    assert measure.value == pytest.approx(1.0, abs=1e-6)
    assert measure.details["the witness is on the safeguard ball"] is True
    # v stays the gradient of f: the ball's normal is accounted for apart.
    assert measure.details["v"][0].tolist() == pytest.approx([-30.0, 0.0], abs=1e-4)


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    constraints=st.integers(1, 3),
    kinks=st.booleans(),
    split=st.booleans(),
    radius=st.sampled_from([0.5, 2.0]),
)
def test_agrees_with_clarabel_for_convex_constraints(
    build: Callable[..., Any],
    seed: int,
    n: int,
    constraints: int,
    radius: float,
    **options: bool,
) -> None:
    case = build(seed, n, constraints=constraints, radius=radius, reach=0.8, **options)
    lam, beta = 1.5, 8.0
    measure = judged(case.problem, lam, beta, radius=radius)
    assert measure.error <= 1e-5 * max(1.0, measure.value)
    y = torch.cat(measure.details["witness"]).numpy()
    reference = case.proximal_point(beta / 2, strength=lam)

    def value(z: np.ndarray) -> float:
        return float(case.value(z, beta / 2) + lam * max(0.0, case.worst(z)))

    assert value(y) <= value(reference) + 1e-6
    exact = beta * np.linalg.norm(case.x - reference)
    assert measure.value == pytest.approx(exact, abs=measure.error + 5e-3)
    mu = measure.details["multipliers"]
    assert min(mu.values()) >= 0
    assert sum(mu.values()) <= lam * (1 + 1e-12)


WAVY = [(-0.4, 3.0), (0.1, 5.0), (0.7, 7.0)]


@pytest.mark.parametrize(("x", "frequency"), WAVY)
def test_agrees_with_a_grid_for_a_nonconvex_constraint(
    x: float, frequency: float
) -> None:
    lam, L, beta = 1.0, frequency**2, 2.0 * (1.0 + frequency**2)
    w = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: (w - 0.2).abs().sum()),
        {"wave": oneproj.function(lambda: (frequency * w).sin().sum()) <= 0.1},
        radius=1.0,
    )
    k = {"constraint_smoothness": L, "radius": 1.0}
    measure = judged(problem, lam, beta, **k)
    y = np.linspace(-1, 1, 2_000_001)
    g = np.sin(frequency * y) - 0.1
    H = np.abs(y - 0.2) + lam * np.maximum(g, 0) + beta / 2 * (y - x) ** 2
    exact = beta * abs(x - y[H.argmin()])
    assert measure.value == pytest.approx(exact, abs=3e-6 * beta)
    assert measure.error <= 1e-5 * beta
    assert "violation" not in measure.details


def test_a_small_residual_makes_the_witness_feasible_and_the_projection_near() -> None:
    """lem:nc-transfer, on a nonconvex ring: 1/4 <= |w|^2 <= 1 seen from near by."""
    rng = np.random.default_rng(0)
    # g = (|w|^2 - 5/8)^2 <= (3/8)^2 is the ring; near it the slopes are large.
    lam, L = 8.0, 8.0
    constants = claims(constraint_smoothness=L, gradient_bound=0.2, radius=1.2)
    beta = 2.0 * constants.penalized_weak_convexity(lam)
    m = beta - constants.penalized_weak_convexity(lam)
    for _ in range(8):
        direction = rng.normal(size=2)
        x = direction / np.linalg.norm(direction) * rng.uniform(1.0, 1.02)
        problem, w = _ring(x)
        measure = penalty_residual(problem, constants, strength=lam, prox_weight=beta)
        assert measure.details["r < h_feas"] is True
        assert measure.details["r < beta R"] is True
        assert measure.details["the witness is feasible"] is True
        y = measure.details["witness"][0].numpy()
        p = x / max(1.0, float(np.linalg.norm(x)))
        near = measure.details["distance of the projection from the witness"]
        assert np.linalg.norm(p - y) <= near + 1e-9
        # What certify says of the projected point: R <= (2 + beta/m) R(x_J).
        with torch.no_grad():
            w.copy_(torch.tensor(p))
        after = penalty_residual(problem, constants, strength=lam, prox_weight=beta)
        assert after.value <= (2 + beta / m) * (measure.value + measure.error) + 1e-9


def _ring(x: np.ndarray) -> tuple[oneproj.Problem, Tensor]:
    w = torch.tensor(x, requires_grad=True)
    ring = oneproj.function(lambda: (w.square().sum() - 0.625) ** 2)
    f = oneproj.function(lambda: 0.2 * w[0])
    return oneproj.Problem(w, f, {"ring": ring <= 0.375**2}, radius=1.2), w


def test_the_obstruction_of_appendix_c() -> None:
    w = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)
    g = oneproj.function(lambda: (w.square() - 0.25).square().sum())
    f = oneproj.function(lambda: 0.0 * w.sum())
    problem = oneproj.Problem(w, f, {"g": g <= 1 / 64}, radius=1.0)
    # g'' = 12 w^2 - 1, so L_g = 11 on the ball; g'(0) = 0 although g(0) = 3/64 > 0.
    constants = claims(constraint_smoothness=11.0, radius=1.0)
    measure = penalty_residual(problem, constants, strength=20.0, prox_weight=500.0)
    assert measure.value == 0.0
    assert measure.error <= 1e-12
    assert measure.details["the witness is feasible"] is False
    assert measure.details["worst residual of the witness"] == pytest.approx(3 / 64)
    assert measure.details["r < h_feas"] is True  # the claim sigma_out = 0.5 is false,
    slope = infeasible_slope(problem, torch.Generator().manual_seed(0), claimed=0.5)
    assert slope.details["violation"] == "the slope is zero at an infeasible point"
    assert abs(slope.details["where"][0].item()) <= 1e-5
    assert slope.holds is False  # and the check says so.


def test_the_margins_are_decided_at_the_far_end_of_the_error() -> None:
    # h_feas = 2.5 * 0.2 - 0.25 = 0.25, beta sigma_bd / L_g = 30 * 0.5 / 2 = 7.5.
    k = {"gradient_bound": 0.25, "infeasible_slope": 0.2}
    low = judged(disc_at([0.1, 0.0], [0.2, 0.0]), 2.5, 30.0, **k)
    assert low.details["h_feas"] == pytest.approx(0.25)
    assert low.details["beta R"] == pytest.approx(7.5)
    assert (low.details["r < h_feas"], low.details["r < beta R"]) == (True, True)
    high = judged(disc_at([0.1, 0.0], [0.25, 0.0]), 2.5, 30.0, **k)
    assert high.details["r < h_feas"] is False


@pytest.mark.parametrize("split", [False, True])
def test_float32_agrees_with_float64(build: Callable[..., Any], *, split: bool) -> None:
    options = {"constraints": 2, "reach": 0.8, "split": split}
    single = judged(build(4, 4, dtype=torch.float32, **options).problem, 1.5, 8.0)
    double = judged(build(4, 4, **options).problem, 1.5, 8.0)
    assert single.value == pytest.approx(double.value, abs=single.error + double.error)
    assert single.error <= 2e-2
    assert single.details["witness"][0].dtype == torch.float32
    assert "violation" not in single.details


def test_a_false_smoothness_is_found_out() -> None:
    problem, _ = _ring(np.array([0.3, 0.0]))
    k = {"constraint_smoothness": 0.6, "radius": 1.2}
    measure = judged(problem, lam=10.0, beta=7.5, **k)
    assert measure.error == math.inf
    assert (
        "not weakly convex with ell + lambda L_g = 7.0" in measure.details["violation"]
    )
    assert measure.details["r < h_feas"] is False


def test_a_prox_weight_that_is_too_small_is_refused() -> None:
    with pytest.raises(InvalidScheduleError, match=r"fails: 5\.0 <= 5\.0"):
        judged(disc_at([0.1, 0.0], [0.3, 0.4]), lam=2.0, beta=5.0)


def test_nan_is_named_and_the_point_restored() -> None:
    w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(w.sum),
        {"root": oneproj.function(lambda: (w - 0.45).sqrt().sum()) <= 9.0},
        radius=2.0,
    )
    bits = snapshot([w])[0]
    with pytest.raises(NonFiniteError, match="'root'"):
        judged(problem, lam=2.0, beta=5.5)
    assert torch.equal(w.detach(), bits)


def test_the_obstruction_refutes_the_slope_condition() -> None:
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    constants = oneproj.theory.NonconvexConstants(
        weak_convexity=WEAK_CONVEXITY,
        gradient_bound=1.0,
        constraint_gradient_bound=3.0,
        constraint_smoothness=SMOOTHNESS,
        boundary_slope=BOUNDARY_SLOPE,
        infeasible_slope=0.1,
    )
    plan = oneproj.theory.nonconvex_schedule(constants, epsilon=0.5)
    for projected in (False, True):
        certificate = oneproj.certify(
            obstruction_problem(w), schedule=plan, projected=projected
        )
        measure = certificate["penalty residual"]
        assert measure.value == 0.0
        assert (measure.bound, measure.holds) == (None, None)
        assert "2/3" not in str(certificate)
        assert "where g > 0 >= 0.1 (infeasible_slope); 0 was seen" in str(certificate)
        assert "it is 0 at the witness, where g = 0.046875" in str(certificate)
