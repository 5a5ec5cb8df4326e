"""The closed forms of the laboratory and the certificates test each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneproj
from oneproj.certificates.assumptions import infeasible_slope
from oneproj.certificates.kkt import gradient_mapping
from oneproj.certificates.proximal import moreau_residual, penalty_residual
from oneproj.projection.closed_form import ClosedForm
from oneproj.theory import NonconvexConstants
from oneproj_paper.laboratory import obstruction
from oneproj_paper.laboratory.bridge import as_problem, objective_value
from oneproj_paper.laboratory.problems import (
    nonconvex_problem,
    nonsmooth_problem,
    smooth_problem,
)

POINTS = [(-0.9, 0.0), (0.3, -0.5), (0.649, 0.69), (0.1, 0.5)]


def tensor(x: object) -> torch.Tensor:
    return torch.tensor(np.array(x), dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("x", POINTS)
def test_gradient_mapping(x: tuple[float, float]) -> None:
    problem, w = smooth_problem(), tensor(x)
    library = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: objective_value(problem, w)),
        constraints={"disc": oneproj.sets.Ball(problem.disc.radius).on(w)},
        radius=1.0,
    )
    ell = problem.constants.weak_convexity
    found = gradient_mapping(library, ClosedForm(), weak_convexity=ell)
    ours = float(problem.measure_at(np.array([x]))[0])
    assert ours == pytest.approx(found.value, abs=1e-12)


@pytest.mark.parametrize("x", POINTS)
def test_moreau_residual(x: tuple[float, float]) -> None:
    problem, w = nonsmooth_problem(), tensor(x)
    ell = problem.constants.weak_convexity
    found = moreau_residual(as_problem(problem, w), weak_convexity=ell)
    ours = float(problem.measure_at(np.array([x]))[0])
    assert found.error < 1e-4
    assert abs(ours - found.value) <= found.error + 1e-12


@pytest.mark.parametrize("x", [*POINTS, (0.05, 0.93), (0.4, 0.85)])
def test_penalty_residual_and_witness(x: tuple[float, float]) -> None:
    problem, w = nonconvex_problem(), tensor(x)
    schedule = problem.schedule
    found = penalty_residual(
        as_problem(problem, w),
        problem.constants,
        strength=schedule.strength,
        prox_weight=schedule.prox_weight,
    )
    ours = problem.witness(np.array([x]))
    assert found.error < 1e-3
    assert abs(ours.residual[0] - found.value) <= found.error + 1e-12
    (y,) = found.details["witness"]
    near = found.error / schedule.prox_weight + 1e-12
    assert np.linalg.norm(ours.y[0] - y.numpy()) <= near


def test_no_infeasible_slope_below_the_certified_one_is_found() -> None:
    problem = nonconvex_problem()
    library = as_problem(problem, tensor(problem.start))
    generator = torch.Generator().manual_seed(0)
    claimed = problem.dented.infeasible_slope
    found = infeasible_slope(library, generator, claimed=claimed)
    assert found.details["violation"] is None
    assert claimed <= found.value <= 1.03 * claimed


def test_the_obstruction_has_residual_zero_an_infeasible_witness_and_a_name() -> None:
    w = tensor([0.0])
    library = obstruction.obstruction_problem(w)
    claims = NonconvexConstants(
        weak_convexity=obstruction.WEAK_CONVEXITY,
        gradient_bound=1e-3,
        constraint_gradient_bound=3.0,
        constraint_smoothness=obstruction.SMOOTHNESS,
        boundary_slope=obstruction.BOUNDARY_SLOPE,
        infeasible_slope=obstruction.BOUNDARY_SLOPE,  # false, and found to be
    )
    lam = 10.0
    beta = 2.0 * claims.penalized_weak_convexity(lam)
    found = penalty_residual(library, claims, strength=lam, prox_weight=beta)
    assert found.value <= found.error + 1e-12
    assert found.error < 1e-6
    assert found.details["worst residual of the witness"] == pytest.approx(3 / 64)
    assert not found.details["the witness is feasible"]
    assert found.details["r < h_feas"]  # so, were the claims true, y would be feasible
    slope = infeasible_slope(library, torch.Generator().manual_seed(0))
    assert slope.details["violation"] == "the slope is zero at an infeasible point"
    assert slope.value == pytest.approx(0.0, abs=1e-9)
