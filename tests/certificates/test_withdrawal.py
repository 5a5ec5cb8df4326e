"""A theorem whose assumptions are visibly false is withdrawn, by name and number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    Schedule,
    convex_schedule,
    nonconvex_schedule,
)


def schedule(**changes: float) -> Schedule:
    """The shortest there is; true of ``problem`` below without changes."""
    claims = {
        "weak_convexity": 1e-3,
        "gradient_bound": 0.02,
        "constraint_gradient_bound": 2.0,
        "boundary_slope": 1.0,
        "initial_gap": 1e-3,
    }
    return convex_schedule(ConvexConstants(**claims | changes), epsilon=1.0)


def problem(
    constraint: Callable[[Tensor], object] | None = None,
    slope: float = 1e-4,
    dtype: torch.dtype = torch.float64,
) -> oneproj.Problem:
    """min slope * w_0 over the disc of radius 1/2, in the unit ball."""
    w = torch.tensor([0.1, 0.05], dtype=dtype, requires_grad=True)
    if constraint is None:
        square = oneproj.function(lambda: w.square().sum(), curvature="convex")
        g = square <= 0.25
    else:
        g = constraint(w)
    objective = oneproj.function(lambda: slope * w[0])
    return oneproj.Problem(w, objective, {"g": g}, radius=1.0)


def assert_withdrawn(solution: oneproj.Solution, *words: str) -> None:
    certificate = solution.certificate
    measure = certificate["Moreau residual"]
    assert (measure.bound, measure.holds) == (None, None)
    assert measure.source.startswith("withdrawn: Theorem 2 assumes ")
    assert "2/3" not in str(certificate)
    assert certificate.holds is False
    reasons = "\n".join(certificate.withdrawn)
    for word in words:
        assert word in reasons
    assert f"withdrawn: {certificate.withdrawn[0]}" in str(certificate)
    assert solution.to_dict()["certificate"]["withdrawn"] == list(certificate.withdrawn)
    json.dumps(solution.to_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_true_claims_keep_the_label(dtype: torch.dtype) -> None:
    """Two of them with equality: |grad g| is 1 on the boundary and 2 on the ball."""
    solution = oneproj.solve(problem(dtype=dtype), schedule=schedule())
    measure = solution.certificate["Moreau residual"]
    assert measure.source == "Theorem 2 at x_hat, probability >= 2/3"
    assert (measure.bound, measure.holds) == (1.0, True)
    assert solution.certificate.withdrawn == ()
    assert solution.certificate.holds
    assert measure.details["assumption tests"]["constraint gradients"] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_true_claims_of_theorem_3_keep_the_label(dtype: torch.dtype) -> None:
    constants = NonconvexConstants(
        weak_convexity=1e-3,
        gradient_bound=0.02,
        constraint_gradient_bound=2.0,
        constraint_smoothness=2.0,
        boundary_slope=1.0,
        infeasible_slope=1.0,
    )
    plan = nonconvex_schedule(constants, epsilon=0.5)
    certificate = oneproj.certify(problem(dtype=dtype), schedule=plan)
    assert certificate.withdrawn == ()
    assert "probability >= 2/3" in certificate["penalty residual"].source


def test_a_gradient_beyond_its_bound_is_named() -> None:
    solution = oneproj.solve(problem(slope=4.5), schedule=schedule())
    assert_withdrawn(solution, "|grad f| <= 0.02 (gradient_bound); 4.5 was seen")


def test_a_gradient_that_only_the_run_saw_counts(tmp_path: Path) -> None:
    """Steep around the start only; the run resumes far from there."""

    def build() -> oneproj.Problem:
        w = torch.tensor([0.3, 0.0], dtype=torch.float64, requires_grad=True)
        bump = oneproj.function(lambda: (-1e4 * (w[0] - 0.31).square()).exp().sum())
        square = oneproj.function(lambda: w.square().sum(), curvature="convex")
        return oneproj.Problem(w, bump, {"g": square <= 0.25}, radius=1.0)

    plan, file = schedule(), tmp_path / "run.pt"
    whole = oneproj.solve(build(), schedule=plan, seed=1)
    assert_withdrawn(whole, "(gradient_bound); 73.5759 was seen")
    half = plan.gradient_calls // 2
    stop = {"callbacks": lambda update: update.update == half}
    stopped = build()
    oneproj.solve(stopped, schedule=plan, seed=1, checkpoint=file, **stop)
    resumed = oneproj.solve(
        build(), schedule=plan, seed=1, checkpoint=oneproj.Checkpoint(file)
    )
    assert resumed.certificate.withdrawn == whole.certificate.withdrawn


def test_a_constraint_gradient_beyond_its_bound_is_named() -> None:
    plan = schedule(constraint_gradient_bound=1.5)
    solution = oneproj.solve(problem(), schedule=plan)
    assert_withdrawn(solution, "|grad g| <= 1.5 (constraint_gradient_bound); 1.8")


def test_a_boundary_that_is_flatter_than_claimed_is_named() -> None:
    plan = schedule(boundary_slope=1.25)
    solution = oneproj.solve(problem(), schedule=plan)
    assert_withdrawn(solution, "|grad g| where g = 0 >= 1.25 (boundary_slope); 1 was")


def _ring(w: Tensor, curvature: str | None) -> object:
    term = oneproj.function(lambda: (w.square().sum() - 0.25) ** 2, curvature=curvature)
    return term <= 0.06


def test_a_ring_is_refused_under_a_convex_schedule() -> None:
    ring = problem(lambda w: _ring(w, None))
    with pytest.raises(oneproj.InvalidProblemError, match="not declared convex or lin"):
        oneproj.solve(ring, schedule=schedule(constraint_gradient_bound=4.0))
    plan = schedule(constraint_gradient_bound=4.0)
    certificate = oneproj.certify(ring, schedule=plan)
    assert certificate.withdrawn[0] == (
        "Theorem 2 assumes a convex g; 'g' is not declared convex or linear"
    )
    assert certificate["Moreau residual"].bound is None


def test_a_ring_that_is_declared_convex_is_found_out() -> None:
    ring = problem(lambda w: _ring(w, "convex"))
    plan = schedule(constraint_gradient_bound=4.0, boundary_slope=0.1)
    certificate = oneproj.certify(ring, schedule=plan)
    assert "Theorem 2 assumes a convex g; where a linearisation of it" in str(
        certificate
    )
    assert certificate["Moreau residual"].holds is None


UNBOUNDED = {
    "a halfspace": lambda w: oneproj.sets.Halfspace([1.0, 0.5], offset=0.3).on(w),
    "a linear function": lambda w: (
        oneproj.function(lambda: w[0] + 0.5 * w[1], curvature="linear") <= 0.3
    ),
    "a slab": lambda w: (
        oneproj.function(lambda: (w[0] + 0.5 * w[1]) ** 2, curvature="convex") <= 0.09
    ),
    "a ball that is too large": lambda w: oneproj.sets.Ball(1.5).on(w),
}


@pytest.mark.parametrize("constraint", UNBOUNDED.values(), ids=UNBOUNDED)
def test_a_feasible_set_beyond_the_ball_is_named(
    constraint: Callable[[Tensor], object],
) -> None:
    plan = schedule(boundary_slope=0.5)
    solution = oneproj.solve(problem(constraint), schedule=plan)
    assert_withdrawn(solution, "|x - center| of every feasible x <= 1 (radius); ")


def test_a_set_that_fills_the_ball_is_inside() -> None:
    solution = oneproj.solve(
        problem(lambda w: oneproj.sets.Ball(1.0).on(w)), schedule=schedule()
    )
    assert solution.certificate.withdrawn == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_maximum_is_not_differentiable(dtype: torch.dtype) -> None:
    def largest(w: Tensor) -> object:
        return oneproj.function(lambda: w.abs().max(), curvature="convex") <= 0.4

    solution = oneproj.solve(problem(largest, dtype=dtype), schedule=schedule())
    assert_withdrawn(solution, "a continuously differentiable g; its gradient changes")


def test_a_sharp_but_smooth_maximum_is_differentiable() -> None:
    def largest(w: Tensor) -> object:
        soft = oneproj.function(
            lambda: torch.cat([1e4 * w, -1e4 * w]).logsumexp(0) / 1e4,
            curvature="convex",
        )
        return soft <= 0.4

    plan = schedule(boundary_slope=0.5)
    solution = oneproj.solve(problem(largest), schedule=plan)
    assert solution.certificate.withdrawn == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_refutes_no_convexity(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(6, generator=generator).to(dtype)
    for _ in range(4):
        w = (0.1 * torch.randn(6, generator=generator)).to(dtype).requires_grad_()
        cap = oneproj.function(lambda w=w: (a * w).sum(), curvature="linear") <= 0.5
        goal = oneproj.function(lambda w=w: 1e-3 * w.sum())
        posed = oneproj.Problem(w, goal, {"cap": cap}, radius=1.0)
        withdrawn = oneproj.certify(posed, schedule=schedule()).withdrawn
        assert not [reason for reason in withdrawn if "convex g" in reason]


def test_a_function_that_fails_outside_the_ball_keeps_its_certificate() -> None:
    w = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)

    def delicate() -> torch.Tensor:
        if float(w.detach().norm()) > 1.0 + 1e-9:
            message = "not outside of the ball"
            raise ValueError(message)
        return w.square().sum()

    cap = oneproj.function(delicate, curvature="convex") <= 0.25
    goal = oneproj.function(lambda: 1e-3 * w.sum())
    posed = oneproj.Problem(w, goal, {"cap": cap}, radius=1.0)
    assert oneproj.certify(posed, schedule=schedule()).withdrawn == ()
