"""Projected SGD: each projection begins with what the last one learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Projection, Solution
from oneproj.problem import AbstractTerm
from oneproj.projection import AbstractProjector
from oneproj.projection.cuts import Cuts
from oneproj.vectors import Vector


class Cold(AbstractProjector):
    """Forgets everything after every projection."""

    name = "cold"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> None:
        del constraints

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        exact = Cuts(tolerance=0.0)
        return oneproj.project(parameters, constraints, projector=exact)


def run(projector: str | AbstractProjector) -> tuple[Solution, Tensor]:
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
    (cold, there), (warm, here) = run(Cold()), run(Cuts(tolerance=0.0))
    torch.testing.assert_close(here, there, rtol=0, atol=1e-11)
    for name in ("objective", "risk"):
        assert warm.history[name] == pytest.approx(cold.history[name], abs=1e-10)
    assert warm.counts.projections == cold.counts.projections == 30
    used = warm.counts.constraint_gradients, cold.counts.constraint_gradients
    assert 1.5 * used[0] <= used[1]


def run_network(projector: str | AbstractProjector, seed: int) -> Solution:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(100, 5, generator=generator, dtype=torch.float64)
    signs = torch.where(x > 0, 1.0, -1.0).double()
    first = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    last = torch.randn(12, generator=generator, dtype=torch.float64) / 12**0.5
    parameters = [first.requires_grad_(), last.requires_grad_()]

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, wanted = batch
        scores = torch.nn.functional.softplus(rows @ first) @ last
        return torch.nn.functional.softplus(-wanted * scores)

    problem = oneproj.Problem(
        parameters,
        objective=oneproj.mean(losses, data=(x, signs[:, 1])),
        constraints={"risk": oneproj.mean(losses, data=(x, signs[:, 0])) <= 0.5},
        radius=50.0,
    )
    return oneproj.solve(
        problem, method="projected-sgd", steps=30, lr=0.1, projector=projector
    )


def test_local_models_are_carried_as_well() -> None:
    # Nearest only locally, and stopped earlier: the path is nearly the same. Rounding
    # decides how many gradients one run takes, from half to twice as many; the median
    # over seeds is a third less with a warm start.
    savings = []
    for seed in range(12):
        cold, warm = run_network(Cold(), seed), run_network("cuts", seed)
        assert warm.feasible
        assert warm.objective == pytest.approx(cold.objective, rel=1e-2)
        assert all(residual <= 0 for residual in warm.history["risk"])
        used = cold.counts.constraint_gradients, warm.counts.constraint_gradients
        savings.append(used[0] / used[1])
    assert median(savings) >= 1.2


def path(**options: object) -> list[float]:
    """Where it goes on f(w) = w^2 / 2, from 1, when nothing is violated."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    half_square = oneproj.function(lambda: w.square().sum() / 2, curvature="convex")
    problem = oneproj.Problem(w, half_square, {"loose": half_square <= 9.0})
    seen: list[float] = []
    oneproj.solve(
        problem,
        method="projected-sgd",
        steps=4,
        callbacks=lambda _: seen.append(w.item()),
        **options,
    )
    return seen


def test_the_default_is_the_papers_plain_constant_step() -> None:
    assert path() == pytest.approx([0.95, 0.95**2, 0.95**3, 0.95**4], rel=1e-12)


def test_it_takes_the_base_step_and_the_decay_of_algorithm_1() -> None:
    factors = [1 - 0.5 * share for share in (1.0, 0.75, 0.5, 0.25)]
    expected = [math.prod(factors[:k]) for k in range(1, 5)]
    assert path(lr=0.5, decay="linear") == pytest.approx(expected, rel=1e-12)
    # Adam's first step has the length of lr, whatever the gradient.
    assert path(lr=0.01, base="adam")[0] == pytest.approx(0.99, rel=1e-6)


def test_a_rate_without_meaning_is_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="lr must be one"):
        path(lr=-1.0)
