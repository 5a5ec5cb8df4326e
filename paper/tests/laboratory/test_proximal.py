"""The proximal points that judge the theorems, against solvers that know nothing."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from oneproj_paper.laboratory.convex import AbstractConvexProblem
from oneproj_paper.laboratory.objectives import length
from oneproj_paper.laboratory.problems import (
    nonconvex_problem,
    nonsmooth_problem,
    smooth_problem,
)
from oneproj_paper.laboratory.proximal import constrained_prox, penalized_prox

NONCONVEX = nonconvex_problem()
POINTS = np.random.default_rng(5).uniform(-0.7, 0.7, (12, 2))


@pytest.mark.parametrize("problem", [smooth_problem(), nonsmooth_problem()])
def test_constrained_prox_agrees_with_a_convex_solver(
    problem: AbstractConvexProblem,
) -> None:
    c, k, a, descent = problem.objective.parameters
    ell = problem.constants.weak_convexity
    for x in np.concatenate([POINTS, problem.solutions, [[0.99, 0.1]]]):
        y = cp.Variable(2)
        cost = 0.5 * c * cp.square(y[0] - a) + k * cp.abs(y[0] - a)
        cost += ell * cp.square(y[0] - x[0])
        # -l/2 y^2 + ell (y - x)^2, with the square completed by hand.
        cost += (ell - descent / 2) * cp.square(y[1]) - 2 * ell * x[1] * y[1]
        cp.Problem(cp.Minimize(cost), [cp.norm(y) <= problem.disc.radius]).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
        )
        ours = constrained_prox(problem.objective, problem.disc, x[None], ell)[0]
        np.testing.assert_allclose(ours, y.value, atol=1e-5)


def test_penalized_prox_satisfies_its_optimality_condition() -> None:
    schedule = NONCONVEX.schedule
    x = np.concatenate([POINTS, NONCONVEX.solutions, [NONCONVEX.start]])
    x = np.concatenate([x, x + 0.01, [[0.1, 0.9], [0.11, 0.2], [0.0, -0.99]]])
    found = NONCONVEX.witness(x)
    g = NONCONVEX.set.value(found.y)
    lam = schedule.strength
    assert found.error.max() <= 1e-12
    assert length(found.y).max() < 1
    assert ((found.mu >= 0) & (found.mu <= lam)).all()
    assert (np.abs(g[(found.mu > 0) & (found.mu < lam)]) <= 1e-13).all()
    assert (g[found.mu == 0] <= 0).all()
    assert (g[found.mu == lam] >= 0).all()
    away = found.y[:, 0] != NONCONVEX.objective.center
    f_slope = NONCONVEX.objective.gradient(found.y)
    np.testing.assert_allclose(found.v[away], f_slope[away])
    assert (np.abs(found.v[:, 0]) <= NONCONVEX.objective.kink).all()
    # All cases occur: free, on the boundary, infeasible, on the kink.
    assert {0.0, lam} < set(found.mu.tolist())
    assert (~away).any()


def test_penalized_prox_is_the_minimiser_on_a_grid() -> None:
    schedule = NONCONVEX.schedule
    lam, beta = schedule.strength, schedule.prox_weight
    offsets = np.stack(np.meshgrid(*[np.linspace(-1, 1, 81)] * 2), axis=-1)
    for x in (NONCONVEX.start_point, POINTS[0], NONCONVEX.solutions[0] + 0.02):

        def subproblem(z: np.ndarray, x: np.ndarray = x) -> np.ndarray:
            penalty = lam * np.maximum(NONCONVEX.set.value(z), 0)
            pull = 0.5 * beta * ((z - x) ** 2).sum(-1)
            return NONCONVEX.objective.value(z) + penalty + pull

        y = penalized_prox(
            NONCONVEX.objective,
            NONCONVEX.dented,
            x[None],
            strength=lam,
            prox_weight=beta,
        ).y[0]
        for scale in (1.0, 1e-2, 1e-4, 1e-6):
            others = y + scale * offsets
            inside = length(others) <= 1
            assert subproblem(others[inside]).min() >= subproblem(y) - 1e-14
