"""Penalty SGD: plain steps on f + p(c)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj


def instance() -> tuple[oneproj.Problem, Tensor]:
    """min |w - (3, 4)|^2, both caps violated on the way: multipliers 4 and 6."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={
            "first": oneproj.function(lambda: w[0], curvature="linear") <= 1.0,
            "second": oneproj.function(lambda: w[1], curvature="linear") <= 1.0,
        },
        radius=2.0,
    )
    return problem, w


@pytest.mark.parametrize("combine", ["sum", "max"])
def test_it_steps_as_algorithm_1_does_inside_an_outer_iteration(combine: str) -> None:
    problem, w = instance()
    path: list[Tensor] = []
    oneproj.solve(
        problem,
        method="penalty-sgd",
        steps=40,
        strength=7.0,
        combine=combine,
        decay="constant",
        callbacks=lambda _: path.append(w.detach().clone()),
    )
    problem, z = instance()
    optimizer = oneproj.OneProjection(
        [z],
        lr=0.05,
        prox_weight=0.0,
        inner_steps=1000,
        radius=2.0,
        base=torch.optim.SGD,
    )
    penalty = oneproj.Hinge(7.0, combine)
    for seen in path:
        optimizer.zero_grad()
        c = torch.stack([c.batch_value(None) for c in problem.constraints.values()])
        (problem.objective.batch_value(None) + penalty(c)).backward()
        optimizer.step()
        assert torch.equal(seen, z.detach())


def test_the_penalty_is_exact_once_it_exceeds_each_multiplier() -> None:
    # The answer before its projection: within the last steps of (1, 1), or far beyond.
    for strength, combine, exact in ((7.0, "sum", True), (3.0, "sum", False)):
        problem, _ = instance()
        solution = oneproj.solve(
            problem, method="penalty-sgd", strength=strength, combine=combine
        )
        before = solution.projection.residuals_before
        assert (max(map(abs, before.values())) < 1e-2) == exact
    problem, _ = instance()  # the worst alone has to outweigh 4 + 6
    weak = oneproj.solve(problem, method="penalty-sgd", strength=7.0, combine="max")
    assert max(weak.projection.residuals_before.values()) > 0.1


def test_a_strength_that_cannot_penalise_is_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="strength must be one"):
        oneproj.solve(instance()[0], method="penalty-sgd", strength=0.0)
