"""Cuts on a maximum over many examples: a facet for nearly every direction."""

from __future__ import annotations

import cvxpy as cp
import pytest
import torch

import oneproj
from oneproj.projection.cuts import Cuts
from oneproj.projection.tolerances import TOLERANCES


@pytest.mark.parametrize(("rows", "dimension"), [(500, 100), (500, 200)])
def test_a_maximum_over_many_rows_is_projected_onto_exactly(
    rows: int, dimension: int
) -> None:
    """The answer lies on about as many facets as there are dimensions.

    The residual falls only at the very end; until then the bound is what grows.
    """
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(rows, dimension, generator=generator, dtype=torch.float64)
    start = 3 * torch.randn(dimension, generator=generator, dtype=torch.float64)
    w = start.clone().requires_grad_()
    largest = oneproj.function(lambda: (A @ w).abs().max(), curvature="convex")
    exact = Cuts(tolerance=0.0)
    done = oneproj.project(w, {"largest": largest <= 1.0}, projector=exact)

    v = cp.Variable(dimension)
    nearest = cp.norm(v - start.numpy())
    true = cp.Problem(cp.Minimize(nearest), [cp.abs(A.numpy() @ v) <= 1.0])
    assert done.residuals["largest"] <= 0
    assert done.distance == pytest.approx(true.solve(solver="CLARABEL"), rel=1e-7)
    assert done.lower_bound == pytest.approx(done.distance, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_an_empty_set_is_recognised_near_the_least_violated_point(seed: int) -> None:
    # Cuts are flat there, and nearly cancel before they do: rounding comes between.
    generator = torch.Generator().manual_seed(seed)
    n, doubles = 12, {"generator": generator, "dtype": torch.float64}
    X, y = torch.randn(60, n, **doubles), torch.randn(60, **doubles).sign()
    start = 0.05 * torch.randn(n, **doubles)
    w = start.clone().requires_grad_()
    term = oneproj.function(
        lambda: torch.nn.functional.softplus(-y * (X @ w)).mean(), curvature="convex"
    )
    done = oneproj.project(w, {"risk": term <= 0.3}, on_failure="return")
    assert done.status is oneproj.Status.PROVEN_INFEASIBLE
    assert done.gradients <= n + 3 + TOLERANCES.probes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_halfspaces_that_meet_far_away_are_followed(dtype: torch.dtype) -> None:
    w, slope = torch.zeros(2, dtype=dtype, requires_grad=True), 1e-5
    above = oneproj.function(lambda: w[1] - slope * w[0], curvature="convex")
    below = oneproj.function(lambda: -w[1] - slope * w[0], curvature="convex")
    done = oneproj.project(w, {"above": above <= -0.5, "below": below <= -0.5})
    margin = torch.finfo(dtype).eps ** 0.75  # of the bound and of the start: 0.5 each
    assert 5e4 <= done.distance <= 5e4 + 1.1 * margin / slope
    assert done.gradients <= 4


@pytest.mark.parametrize("curvature", ["convex", "linear"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [5e6, 1e9])
@pytest.mark.parametrize("sets", [0, 1, 2])
def test_a_wedge_is_not_empty_however_far_away_its_apex_is(
    sets: int,
    far: float,
    dtype: torch.dtype,
    curvature: oneproj.problem.terms.Curvature,
) -> None:
    # The normals cancel but for a share whose square is nothing beside 1.
    w = torch.zeros(3, dtype=dtype, requires_grad=True)
    sides = [torch.tensor([1.0 / far, s, 0.0], dtype=dtype) for s in (1.0, -1.0)]
    wedge = {
        f"side {j}": oneproj.sets.Halfspace(-a.double(), -1.0).on(w)
        if j < sets
        else oneproj.function(lambda a=a: -(a @ w), curvature=curvature) <= -1.0
        for j, a in enumerate(sides)
    }
    done = oneproj.project(w, wedge)
    assert done.distance == pytest.approx(far, rel=1e-3)
    assert done.gradients <= 4
    assert done.lower_bound is not None
    assert done.lower_bound <= far * (1.0 + 1e-9)


def test_a_bowl_is_empty_though_its_cuts_cancel_slowly() -> None:
    # Cuts lead far away before they contradict: one look there is enough.
    generator = torch.Generator().manual_seed(20)
    w = 3.0 * torch.randn(20, generator=generator, dtype=torch.float64)
    w.requires_grad_()
    bowl = oneproj.function(lambda: w.square().sum(), curvature="convex")
    done = oneproj.project(w, {"bowl": bowl <= -1.0}, on_failure="return")
    assert done.status is oneproj.Status.PROVEN_INFEASIBLE
    assert done.gradients <= 8 + TOLERANCES.probes


def test_a_ball_that_a_halfspace_touches_is_left_without_a_proof() -> None:
    # Cuts nearly cancel, and what is left of them is taken back: so are its margins.
    generator = torch.Generator().manual_seed(20)
    x, a, c = (
        torch.randn(8, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    w, a = (10.0 * x).requires_grad_(), a / a.norm()
    ball = oneproj.function(lambda: (w - c).square().sum(), curvature="convex")
    side = oneproj.function(lambda: a @ w, curvature="linear")
    touching = {"ball": ball <= 1.0, "side": side >= float(a @ c) + 1.0}
    done = oneproj.project(w, touching, on_failure="return")
    assert done.status is not oneproj.Status.PROVEN_INFEASIBLE
    assert max(done.residuals.values()) <= 1e-9


@pytest.mark.parametrize("unit", [1e-155, 1e100])
def test_a_far_wedge_is_followed_in_any_units(unit: float) -> None:
    # What is left of normals that cancel is short: not so short that it is nothing.
    w, far = torch.zeros(3, dtype=torch.float64, requires_grad=True), 1e9
    wedge = {
        f"side {s}": oneproj.function(
            lambda s=s: -unit * (w[0] / far + s * w[1]), curvature="convex"
        )
        <= -unit
        for s in (1.0, -1.0)
    }
    assert oneproj.project(w, wedge).distance == pytest.approx(far, rel=1e-3)
