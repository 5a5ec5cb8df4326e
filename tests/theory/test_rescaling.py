"""A ball that is not the unit ball: Algorithm 1 runs the same in both coordinates.

A few outer iterations are run in numpy twice, with the same noise: on f, g over the
ball |x - c| <= R with the schedule of the user's constants, and on u -> f(c + R u),
u -> g(c + R u) over the unit ball with the schedule of the rescaled constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    Schedule,
    convex_schedule,
    nonconvex_schedule,
)

Vector = NDArray[np.float64]

OUTER, INNER, SIZE = 6, 60, 3
CENTER = np.array([0.7, -1.3, 0.4])


@dataclass(frozen=True)
class Problem:
    """Subgradient of f, value and gradient of g, and the ball."""

    grad_f: Callable[[Vector], Vector]
    g: Callable[[Vector], float]
    grad_g: Callable[[Vector], Vector]
    center: Vector
    radius: float

    def on_unit_ball(self) -> Problem:
        c, R = self.center, self.radius
        return Problem(
            grad_f=lambda u: R * self.grad_f(c + R * u),
            g=lambda u: self.g(c + R * u),
            grad_g=lambda u: R * self.grad_g(c + R * u),
            center=np.zeros_like(c),
            radius=1.0,
        )


def weight(schedule: Schedule, value: float) -> float:
    """p'(g): the softplus's logistic function, or the hinge's step."""
    if schedule.smoothing is None:
        return schedule.strength * float(value > 0)
    ratio = np.clip(schedule.strength * value / schedule.smoothing, -500, 500)
    return float(schedule.strength / (1 + np.exp(-ratio)))


def algorithm_1(
    problem: Problem, schedule: Schedule, x: Vector, noise: Vector
) -> tuple[Vector, Vector, list[float]]:
    """Return outer iterates, inner iterates and penalty weights."""
    outer, inner, weights = [x], [], []
    for t in range(schedule.outer_steps):
        z, total = x, np.zeros_like(x)
        for s in range(1, schedule.inner_steps + 1):
            inner.append(z)
            total = total + z
            weights.append(weight(schedule, problem.g(z)))
            h = problem.grad_f(z) + noise[t, s - 1] + weights[-1] * problem.grad_g(z)
            h = h + schedule.prox_weight * (z - x)
            z = z - schedule.step_size(s) * h
            length = np.linalg.norm(z - problem.center) / problem.radius
            z = problem.center + (z - problem.center) / max(1.0, length)
        x = total / schedule.inner_steps
        outer.append(x)
    return np.array(outer), np.array(inner), weights


def make_problem(R: float, *, convex: bool) -> Problem:
    """f wavy; g a ball of radius 0.4 R, dented when it may be nonconvex."""
    dent = 0.0 if convex else 0.2 * R

    def g(x: Vector) -> float:
        wave = dent * np.sin(3 * x[0] / R)
        return float((x - CENTER) @ (x - CENTER) / R + wave - 0.16 * R)

    def grad_g(x: Vector) -> Vector:
        e_0 = np.array([1.0, 0.0, 0.0])
        return 2 * (x - CENTER) / R + dent * 3 / R * np.cos(3 * x[0] / R) * e_0

    return Problem(lambda x: np.cos(2 * x) + 0.5, g, grad_g, CENTER, R)


def make_schedules(R: float, *, convex: bool) -> tuple[Schedule, Schedule]:
    """The schedule of the user's constants, and that of the rescaled ones."""
    epsilon = 0.3 / R
    if convex:
        here = ConvexConstants(
            weak_convexity=2.0,
            gradient_bound=3.0,
            constraint_gradient_bound=2.0,
            boundary_slope=0.8,
            radius=R,
        )
        unit = convex_schedule(here.on_unit_ball(), epsilon * R)
        return convex_schedule(here, epsilon), unit
    there = NonconvexConstants(
        weak_convexity=2.0 / R,
        gradient_bound=3.0,
        constraint_gradient_bound=3.0,
        constraint_smoothness=4.0 / R,
        boundary_slope=0.2,
        infeasible_slope=0.5,
        radius=R,
    )
    # lambda = 12 by default, so rho = 50 / R; a beta near it makes first steps that
    # leave the ball.
    beta = 62.5 / R
    return (
        nonconvex_schedule(there, epsilon, prox_weight=beta),
        nonconvex_schedule(there.on_unit_ball(), epsilon * R, prox_weight=beta * R * R),
    )


CASES = pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
RADII = pytest.mark.parametrize("R", [0.3, 2.5, 40.0])


@RADII
@CASES
def test_both_coordinates_give_the_same_trajectory(R: float, *, convex: bool) -> None:
    steps = {"outer_steps": OUTER, "inner_steps": INNER}
    schedule, unit = (s.with_steps(**steps) for s in make_schedules(R, convex=convex))
    problem = make_problem(R, convex=convex)
    rng = np.random.default_rng(7)
    noise = rng.uniform(-3.0, 3.0, size=(OUTER, INNER, SIZE))
    u_0 = np.array([0.3, 0.5, -0.2])
    x, z, w = algorithm_1(problem, schedule, CENTER + R * u_0, noise)
    u, z_u, w_u = algorithm_1(problem.on_unit_ball(), unit, u_0, R * noise)

    # Early steps expand rounding by about 15, later ones contract it: far below 1e-11,
    # while a wrong factor R shows in the first step.
    np.testing.assert_allclose((x - CENTER) / R, u, rtol=0, atol=1e-11)
    np.testing.assert_allclose((z - CENTER) / R, z_u, rtol=0, atol=1e-11)
    np.testing.assert_allclose(w, w_u, rtol=1e-7, atol=1e-9 * schedule.strength)

    # The comparison sees every part of the step: the ball and the penalty are both
    # active at some inner iterates and inactive at others, and the centre moves.
    at_boundary = np.linalg.norm(z_u, axis=1) > 1 - 1e-12
    assert 0 < at_boundary.sum() < at_boundary.size
    active = np.array(w_u) > unit.strength / 2
    assert 0 < active.sum() < active.size
    assert np.linalg.norm(np.diff(u, axis=0), axis=1).max() > 1e-3


@RADII
@CASES
def test_counts_and_errors_are_those_of_the_unit_ball(
    R: float, *, convex: bool
) -> None:
    schedule, unit = make_schedules(R, convex=convex)
    assert unit.radius == 1.0
    assert schedule.radius == R
    assert schedule.outer_steps == pytest.approx(unit.outer_steps, abs=1)
    assert schedule.inner_steps == unit.inner_steps
    assert schedule.smoothing == unit.smoothing
    assert schedule.strength == pytest.approx(unit.strength, rel=1e-12)
    assert schedule.prox_weight * R**2 == pytest.approx(unit.prox_weight, rel=1e-12)
    m = schedule.strong_convexity * R**2
    assert m == pytest.approx(unit.strong_convexity, rel=1e-12)
    target = schedule.inner_error_target
    assert target == pytest.approx(unit.inner_error_target, rel=1e-12)
    assert schedule.inner_error == pytest.approx(unit.inner_error, rel=1e-6)
    assert schedule.epsilon * R == pytest.approx(unit.epsilon, rel=1e-12)


@RADII
@CASES
def test_the_measures_scale_with_the_radius(R: float, *, convex: bool) -> None:
    # Why the target of u is R epsilon. The gradient mapping with C = the ball itself:
    # ell |x - P(x - grad f / ell)|, at a point where the projection is active.
    problem = make_problem(R, convex=convex)
    unit, ell = problem.on_unit_ball(), 0.1 / R

    def measure(p: Problem, x: Vector, ell: float) -> float:
        y = x - p.grad_f(x) / ell
        y = p.center + (y - p.center) / max(
            1.0, float(np.linalg.norm(y - p.center)) / p.radius
        )
        return ell * float(np.linalg.norm(x - y))

    u = np.array([0.3, 0.5, -0.2])
    here = measure(problem, CENTER + R * u, ell)
    assert measure(unit, u, ell * R**2) == pytest.approx(R * here, rel=1e-12)
