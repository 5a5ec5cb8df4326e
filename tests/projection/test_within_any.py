"""Matrices of a rank beside functions: by the dual, as long as it has no gap."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.projection.cuts import Cuts
from oneproj.results import Status


def draw(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("curvature", ["linear", None])
@pytest.mark.parametrize("seed", range(4))
def test_a_rank_and_a_linear_cap_take_a_few_gradients(
    seed: int, curvature: oneproj.problem.terms.Curvature | None
) -> None:
    start, slope = draw(seed, 10, 8), draw(seed + 100, 10, 8)
    w = start.clone().requires_grad_()
    total = oneproj.function(lambda: (slope * w).sum() + 5.0, curvature=curvature)
    both = {"rank": oneproj.sets.Rank(3).on(w), "total": total <= 0.0}
    done = oneproj.project(w, both)
    assert torch.linalg.svdvals(w.detach())[3] <= 1e-9
    assert done.gradients <= 3
    assert done.kkt_residual <= 1e-6
    # Of seed 1 the cap does not bind: the nearest matrix of the rank is the answer.
    assert (done.lower_bound is None) == (done.multipliers["total"] > 0)
    # No point is nearer: P(y) minimises the Lagrangian over all matrices of the rank.
    mu = done.multipliers["total"]
    U, s, V = torch.linalg.svd(start - mu * slope, full_matrices=False)
    p = (U[:, :3] * s[:3]) @ V[:3]
    least = 0.5 * (p - start).square().sum() + mu * ((slope * p).sum() + 5.0)
    assert 0.5 * done.distance**2 == pytest.approx(float(least), rel=1e-8)


def project_risk(projector: Cuts) -> oneproj.Projection:
    """Half the risk of a matrix, among those of rank 2."""
    X = draw(109, 60, 5)
    w, Y = draw(9, 6, 5).requires_grad_(), 0.5 * X @ draw(209, 5, 6)
    risk = oneproj.mean(
        lambda b: (b[0] @ w.T - b[1]).square().sum(1), data=(X, Y), curvature="convex"
    )
    both = {"rank": oneproj.sets.Rank(2).on(w), "risk": risk <= 0.5 * risk.value()}
    return oneproj.project(w, both, projector=projector)


def test_a_rank_and_a_risk_end_at_the_nearest_point_not_at_twice_its_distance() -> None:
    done = project_risk(Cuts())
    assert done.status is Status.FEASIBLE
    assert done.gradients <= 20
    # Distances are settled to 2e-12, directions to the root of that: which digit of
    # them is right depends on the processor.
    assert done.kkt_residual <= 1e-5


def test_fewer_gradients_and_vectors_are_used_beside_a_rank_if_asked_for() -> None:
    ample, few = project_risk(Cuts()), project_risk(Cuts(max_evaluations=2))
    assert few.status is Status.FEASIBLE
    assert few.gradients < ample.gradients
    assert few.kkt_residual > 10 * ample.kkt_residual, "it stopped before the end"
    # With one vector it ends where rounding leads it: 3 % farther was seen.
    assert project_risk(Cuts(memory=1)).distance <= 1.2 * ample.distance


def test_beside_a_rank_nothing_is_proven_empty() -> None:
    w = draw(0, 4, 4).requires_grad_()
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    both = {"rank": oneproj.sets.Rank(1).on(w), "size": size <= -1.0}
    done = oneproj.project(w, both, on_failure="return")
    assert done.status is Status.INFEASIBLE
    assert done.lower_bound is None
