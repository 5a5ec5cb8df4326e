"""The obstruction of appendix C: nothing moves, and the witness is infeasible."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneproj_paper.laboratory import obstruction
from oneproj_paper.laboratory.obstruction import obstruction_problem, run_obstruction


@pytest.mark.parametrize("strength", [0.1, 1.0, 100.0])
def test_every_iterate_stays_at_zero(strength: float) -> None:
    run = run_obstruction(0.0, strength=strength, outer_steps=5, inner_steps=20)
    assert len(run.inner) == 100
    assert set(run.inner) == {0.0}
    assert run.outer == [0.0] * 6


def test_any_other_start_does_move() -> None:
    run = run_obstruction(0.2, strength=10.0, outer_steps=20, inner_steps=40)
    w = torch.tensor([run.outer[-1]])
    assert run.outer[1] > 0.2
    assert obstruction.constraint_value(w) < 1e-3


def test_constants_of_the_appendix() -> None:
    x = torch.linspace(-1, 1, 20001, dtype=torch.float64, requires_grad=True)
    g = (x.square() - 0.25).square() - 1 / 64
    (slope,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert bend.abs().max().item() == pytest.approx(obstruction.SMOOTHNESS)
    edges = torch.tensor([1 / 8, 3 / 8], dtype=torch.float64).sqrt()
    edges = torch.cat([edges, -edges]).requires_grad_()
    g = (edges.square() - 0.25).square() - 1 / 64
    np.testing.assert_allclose(g.detach(), 0, atol=1e-16)
    (at_edges,) = torch.autograd.grad(g.sum(), edges)
    least = at_edges.abs().min().item()
    assert least == pytest.approx(obstruction.BOUNDARY_SLOPE)


def test_the_residual_is_zero_and_its_witness_infeasible() -> None:
    """H is strongly convex with H'(0) = 0, so 0 is the proximal point of 0."""
    lam = 10.0
    rho = obstruction.WEAK_CONVEXITY + lam * obstruction.SMOOTHNESS
    y = np.linspace(-1, 1, 200_001)
    g = (y * y - 0.25) ** 2 - 1 / 64
    H = lam * np.maximum(g, 0) + rho * y * y  # beta / 2 = rho
    assert y[H.argmin()] == pytest.approx(0.0, abs=1e-12)
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    assert obstruction_problem(w).residuals()["two bands"] == 3 / 64
