"""KKT residual and multipliers against closed forms and clarabel's duals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError, NonFiniteError
from oneproj.certificates.kkt import complementarity, kkt_residual
from oneproj.sets import Ball, Box, L1Ball, Simplex

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
    assert measure.details["active"] == []
    assert measure.details["constraint gradients"] == 1
    assert measure.details["constraint passes"] == 1
    assert measure.details["objective gradients"] == 1


def held_at(slack: float, dtype: torch.dtype = torch.float64) -> oneproj.Problem:
    """min -(3 w_1 + 4 w_2) from (0.6, 0.8), at a distance from what holds it."""
    w = torch.tensor([0.6, 0.8], dtype=dtype, requires_grad=True)
    slope = torch.tensor([3.0, 4.0], dtype=dtype)
    along = oneproj.function(lambda: 2.0 * (slope * w).sum())
    return oneproj.Problem(
        w,
        oneproj.function(lambda: -(slope * w).sum()),
        {"along": along <= 10.0 + 10.0 * slack},
    )


@pytest.mark.parametrize("slack", [0.0, 1e-9, 1e-5, 2e-3, 9e-3, 0.0101, 0.5])
def test_a_near_constraint_holds_by_its_share_and_pays_for_it(slack: float) -> None:
    # |grad f| = 5, |x| = 1 and so the reach is 0.01; the constraint has slope 10.
    measure = kkt_residual(held_at(slack))
    share = max(1.0 - slack / 0.01, 0.0)
    assert measure.details["relative"] == pytest.approx(1.0 - share, abs=1e-9)
    assert measure.details["multipliers"]["along"] == pytest.approx(0.5 * share)
    paid = measure.details["complementarity"]
    assert paid == pytest.approx(0.5 * share * 10.0 * slack, rel=1e-4, abs=1e-12)
    assert complementarity(measure).value == paid


def test_no_cliff_anywhere() -> None:
    slacks = np.concatenate([[0.0], np.geomspace(1e-14, 1.0, 300)])
    values = [kkt_residual(held_at(s)).details["relative"] for s in slacks.tolist()]
    rise, widths = np.diff(values), np.diff(slacks)
    assert (rise >= -1e-12).all()
    assert (rise <= widths / 0.01 + 1e-9).all()


def test_the_answer_of_one_precision_is_that_of_the_other() -> None:
    one, two = (
        kkt_residual(held_at(2e-6, dtype)) for dtype in (torch.float32, torch.float64)
    )
    assert one.details["relative"] == pytest.approx(two.details["relative"], abs=3e-4)
    multipliers = [each.details["multipliers"]["along"] for each in (one, two)]
    assert multipliers == pytest.approx([0.5, 0.5], rel=1e-3)


def test_the_reach_can_be_given() -> None:
    near = held_at(0.1)
    assert kkt_residual(near).details["relative"] == pytest.approx(1.0)
    wide = kkt_residual(near, reach=0.4)
    assert wide.details["relative"] == pytest.approx(0.25)
    assert wide.details["reach"] == 0.4


def test_near_zero_the_reach_does_not_vanish() -> None:
    # min w over w >= 0, answered with 1e-10: as good as 0.
    w = torch.tensor([1e-10], dtype=torch.float64, requires_grad=True)
    floor = {"floor": oneproj.function(w.sum) >= 0.0}
    measure = kkt_residual(oneproj.Problem(w, oneproj.function(w.sum), floor))
    assert measure.value <= 1e-4
    assert measure.details["multipliers"]["floor"] == pytest.approx(1.0, rel=1e-4)


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


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_ball_has_no_cliff_either(share: float) -> None:
    problem = distance_problem([0.6, 0.8], {}, radius=1.0 + 0.01 * share)
    measure = kkt_residual(problem)
    assert measure.details["relative"] == pytest.approx(share, abs=1e-9)
    assert measure.details["ball multiplier"] == pytest.approx(4.0 * (1.0 - share))
    paid = measure.details["complementarity"]
    assert paid == pytest.approx(
        4.0 * (1.0 - share) * 0.01 * share, rel=1e-4, abs=1e-12
    )


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
def test_the_multipliers_minimise_what_they_promise(
    build: Callable[..., Any], seed: int, n: int, *, split: bool
) -> None:
    # Slope and complementary slackness of (t/2)|r|^2 + mu . slack over mu >= 0.
    case = build(seed, n, constraints=4, split=split, reach=1.0)
    measure = kkt_residual(case.problem, reach=0.5)
    discs = [
        (2 * (case.x - a), np.sum((case.x - a) ** 2) - r**2) for a, r in case.discs
    ]
    halves = [(a, a @ case.x - offset) for a, offset in case.halfspaces]
    order = [discs[0], halves[0], discs[1], halves[1]]
    J = np.array([gradient for gradient, _ in order])
    slack = np.maximum([-c for _, c in order], 0.0)
    f = case.A @ case.x + case.b
    mu = np.array(list(measure.details["multipliers"].values()))
    r, t = f + mu @ J, 0.5 / np.linalg.norm(f)
    slope = J @ r + slack / t
    scale = 1.0 + np.linalg.norm(f) * np.linalg.norm(J, axis=1)
    assert measure.value == pytest.approx(np.linalg.norm(r), rel=1e-8, abs=1e-10)
    assert (slope >= -1e-8 * scale).all()
    assert (mu >= 0).all()
    assert np.abs(mu * slope) == pytest.approx(np.zeros(4), abs=1e-7)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6))
def test_bounds_the_gap_of_a_convex_problem(seed: int, n: int) -> None:
    # f(x) - f(z) <= |r||x - z| + complementarity, for any two feasible points.
    rng = np.random.default_rng(seed)
    A, b = torch.tensor(rng.normal(size=(n, n))), torch.tensor(rng.normal(size=n))
    w = torch.tensor(rng.normal(size=n), requires_grad=True)
    f = oneproj.function(lambda: (A @ w - 3.0 * b).square().sum())
    disc = oneproj.function(lambda: (w - 0.3).square().sum(), curvature="convex")
    constraints = {"box": oneproj.sets.Box(0.0, 0.8).on(w), "disc": disc <= 0.5}
    problem = oneproj.Problem(w, f, constraints, radius=5.0)
    points, values = [], []
    for _ in range(6):
        with torch.no_grad():
            w.copy_(torch.tensor(rng.normal(size=n)))
        oneproj.project(w, constraints)
        points.append(w.detach().clone())
        values.append(f.value())
    for x, value in zip(points, values, strict=True):
        with torch.no_grad():
            w.copy_(x)
        for reach in (None, 0.1, 1.0):
            measure = kkt_residual(problem, reach=reach)
            paid = measure.details["complementarity"]
            for z, other in zip(points, values, strict=True):
                bound = measure.value * float((x - z).norm()) + paid
                assert value - other <= bound + 1e-9


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
    measure = kkt_residual(problem)
    assert measure.value <= 1e-3
    duals = dict(
        zip(names, (np.asarray(each.dual_value).item() for each in c), strict=True)
    )
    assert measure.details["multipliers"] == pytest.approx(duals, abs=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype(build: Callable[..., Any], dtype: torch.dtype) -> None:
    case = build(3, 5, constraints=2, dtype=dtype, reach=1.0)
    value = kkt_residual(case.problem, reach=0.5).value
    exact = kkt_residual(build(3, 5, constraints=2, reach=1.0).problem, reach=0.5).value
    assert value == pytest.approx(exact, rel=1e-6)


def test_a_stationary_point_has_relative_residual_zero() -> None:
    measure = kkt_residual(distance_problem([3.0, 4.0], {}))
    assert (measure.value, measure.details["relative"]) == (0.0, 0.0)


def test_bad_reach_and_bad_point() -> None:
    problem = distance_problem([0.6, 0.8], {})
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidProblemError, match="reach must be one finite"):
            kkt_residual(problem, reach=bad)
    with torch.no_grad():
        problem.parameters[0][0] = math.nan
    with pytest.raises(NonFiniteError, match="a parameter of the point"):
        kkt_residual(problem)


def test_is_the_gradient_mapping_of_a_set_alone() -> None:
    # r = (x - P(x - t g)) / t with t = reach / |g|, anywhere in the set.
    generator = torch.Generator().manual_seed(0)
    for members in (Simplex(), Box(-0.3, 0.3), L1Ball(0.5), Ball(0.7)):
        w, g = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        x = members.project(w).requires_grad_()
        objective = oneproj.function(lambda g=g, x=x: (g * x).sum())
        problem = oneproj.Problem(x, objective, {"set": members.on(x)})
        t = 0.2 / float(g.norm())
        mapping = (x - members.project(x.detach() - t * g)).norm() / t
        found = kkt_residual(problem, reach=0.2).value
        assert found == pytest.approx(float(mapping.detach()), rel=1e-9)
