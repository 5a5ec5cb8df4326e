"""The feasible sets: gradients, proven constants, exact projections."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from oneproj.errors import InvalidProblemError
from oneproj_paper.laboratory.dent import DentedDisc, boundary_points
from oneproj_paper.laboratory.objectives import length
from oneproj_paper.laboratory.problems import nonconvex_problem, smooth_problem
from oneproj_paper.laboratory.shapes import Disc

DISC = smooth_problem().disc
DENTED = nonconvex_problem().dented
SETS = [DISC, DENTED]


def ball_points(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, count), np.sqrt(rng.uniform(0, 1, count))
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


@pytest.mark.parametrize("set_", SETS)
def test_gradient_is_the_derivative_of_the_value(set_: Disc | DentedDisc) -> None:
    x, h = ball_points(300), 1e-6
    for k, e in enumerate(np.eye(2) * h):
        slope = (set_.value(x + e) - set_.value(x - e)) / (2 * h)
        np.testing.assert_allclose(set_.gradient(x)[:, k], slope, atol=1e-5)


def test_hessian_is_the_derivative_of_the_gradient() -> None:
    x, h = ball_points(300), 1e-6
    for k, e in enumerate(np.eye(2) * h):
        bend = (DENTED.gradient(x + e) - DENTED.gradient(x - e)) / (2 * h)
        np.testing.assert_allclose(DENTED.hessian(x)[..., k], bend, atol=1e-7)


def test_disc_constants_are_attained() -> None:
    x = ball_points(2000)
    slope = length(DISC.gradient(x))
    assert slope.max() <= DISC.gradient_bound * (1 + 1e-15)
    rim = boundary_points(DISC, np.linspace(0, 6, 50))
    np.testing.assert_allclose(length(DISC.gradient(rim)), DISC.boundary_slope)


def test_disc_constraint_is_convex() -> None:
    x, y = ball_points(3000, 1), ball_points(3000, 2)
    middle = DISC.value((x + y) / 2)
    assert (middle <= (DISC.value(x) + DISC.value(y)) / 2 + 1e-15).all()


def test_smoothness_is_the_largest_curvature_and_is_tight() -> None:
    axis = np.stack([np.zeros(20001), np.linspace(-1, 1, 20001)], axis=-1)
    x = np.concatenate([ball_points(20000), axis])
    largest = np.abs(np.linalg.eigvalsh(DENTED.hessian(x))).max()
    assert largest <= DENTED.smoothness <= 1.01 * largest


def test_certified_slopes_hold_and_are_nearly_tight() -> None:
    x = ball_points(200_000)
    slope, g = length(DENTED.gradient(x)), DENTED.value(x)
    rim = boundary_points(DENTED, np.linspace(0, 2 * np.pi, 20001))
    on_rim = length(DENTED.gradient(rim)).min()
    proven = DENTED.certificate
    assert slope.max() <= proven.largest <= 1.02 * slope.max()
    assert 0.98 * on_rim <= proven.on_boundary <= on_rim
    assert 0.97 * slope[g > 0].min() <= proven.outside <= slope[g > 0].min()
    outward = (x * DENTED.gradient(x)).sum(-1)[g >= 0].min()
    assert 0 < proven.outward <= outward


def test_ball_normals_cannot_shorten_the_gradient() -> None:
    """On the circle, dist(0, grad g + N_B) is |grad g| since grad g points outward."""
    angle = np.linspace(0, 2 * np.pi, 2001)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    d = DENTED.gradient(x)
    assert (DENTED.value(x) > 0).all()  # the set lies inside the open ball
    assert ((x * d).sum(-1) > 0).all()
    tries = d[:, None] + np.linspace(0, 3, 50)[None, :, None] * x[:, None]
    assert length(tries).min() >= DENTED.infeasible_slope


def test_the_dented_disc_is_not_convex() -> None:
    ears = np.array([[-0.4, 0.78], [0.4, 0.78]])
    assert (DENTED.value(ears) < 0).all()
    assert DENTED.value(ears.mean(0)) > 0.015


@pytest.mark.parametrize("set_", SETS)
def test_projection_is_feasible_idempotent_and_nearest(set_: Disc | DentedDisc) -> None:
    x = ball_points(60, 3)
    p = set_.project(x)
    assert (set_.value(p) <= 0).all()
    np.testing.assert_allclose(set_.project(p), p, rtol=0, atol=1e-14)
    inside = set_.value(x) <= 0
    np.testing.assert_allclose(p[inside], x[inside], rtol=0, atol=1e-15)
    rim = boundary_points(set_, np.linspace(0, 2 * np.pi, 100_001))
    for point, projected in zip(x[~inside], p[~inside], strict=True):
        distance = length(point - projected)
        assert distance <= length(rim - point).min() + 1e-14
        # The residual is normal to the boundary: first order optimality.
        d = set_.gradient(projected)
        r = point - projected
        assert abs(r[0] * d[1] - r[1] * d[0]) <= 1e-13


def test_projection_agrees_with_a_general_solver() -> None:
    for x in (np.array([0.05, 0.93]), np.array([0.3, 0.9]), np.array([-0.9, -0.4])):
        best = min(
            (
                minimize(
                    lambda y, x=x: ((y - x) ** 2).sum(),
                    start,
                    constraints={"type": "ineq", "fun": lambda y: -DENTED.value(y)},
                    method="SLSQP",
                    options={"ftol": 1e-15},
                )
                for start in (x * 0.8, np.array([0.3, 0.7]), np.array([-0.3, 0.7]))
            ),
            key=lambda result: result.fun,
        )
        np.testing.assert_allclose(DENTED.project(x), best.x, atol=1e-6)


def test_the_nearest_of_several_local_minima_is_found() -> None:
    """Above a sharp dent the distance has a minimum on either side of the axis."""
    sharp = DentedDisc(radius=0.98, height=0.5, width=0.15, peak=1.0)
    rim = boundary_points(sharp, np.linspace(0, 2 * np.pi, 200_001))
    for offset in (1e-3, 0.02, 0.05, 0.1):
        for height in (0.8, 0.9, 0.97, 0.99):
            x = np.array([offset, height])
            p = sharp.project(x)
            assert p[0] > 0
            assert length(p - x) <= length(rim - x).min() + 1e-14
            mirrored = sharp.project(x * [-1, 1])
            np.testing.assert_allclose(mirrored, p * [-1, 1], atol=1e-13)


def test_sets_that_leave_the_ball_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="inside the unit ball"):
        Disc(radius=1.0)
    with pytest.raises(InvalidProblemError, match="radius < 1 <= peak"):
        DentedDisc(radius=0.9, height=0.3, width=0.3, peak=0.5)
