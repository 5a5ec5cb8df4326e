"""Projected SGD: each projection begins with what the last one learned."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.projection.cuts import Cuts
from oneproj.results import Solution


class Cold(Cuts):
    """Forgets everything after every projection."""

    def warm(self) -> Cuts:
        return self


def run(projector: Cuts) -> tuple[Solution, Tensor]:
    """Least squares under a hinge risk, whose boundary is all kinks."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 20, generator=generator, dtype=torch.float64)
    x[:, 0] += 1.0
    y = 1.0 + 0.3 * torch.randn(80, 20, generator=generator, dtype=torch.float64)
    w = torch.zeros(20, dtype=torch.float64, requires_grad=True)
    risk = oneproj.mean(
        lambda batch: torch.clamp(1.0 - batch @ w, min=0.0),
        data=x,
        curvature="convex",
    )
    problem = oneproj.Problem(
        w,
        objective=oneproj.mean(lambda b: (b - w).square().sum(dim=1), data=y),
        constraints={"risk": risk <= 0.2},
        radius=20.0,
    )
    solution = oneproj.solve(
        problem,
        method="projected-sgd",
        steps=30,
        lr=0.05,
        batch_size=8,
        projector=projector,
    )
    return solution, w.detach()


def test_a_warm_start_saves_gradients_and_changes_no_iterate() -> None:
    (cold, there), (warm, here) = run(Cold()), run(Cuts())
    torch.testing.assert_close(here, there, rtol=0, atol=1e-11)
    for name in ("objective", "risk"):
        assert warm.history[name] == pytest.approx(cold.history[name], abs=1e-10)
    assert warm.counts.projections == cold.counts.projections == 30
    used = warm.counts.constraint_gradients, cold.counts.constraint_gradients
    assert 1.5 * used[0] <= used[1]


def test_a_projector_is_not_warm_after_the_run() -> None:
    projector = Cuts()
    first, second = run(projector)[0], run(projector)[0]
    assert first.counts == second.counts
