"""Long searches over cuts use the curvature that they have learned."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.results import Status


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def nearest(a: Tensor, x: Tensor) -> Tensor:
    """The nearest point of ``sum_i a_i y_i^2 <= 1``, by bisection on its multiplier."""
    low, high = 0.0, 1.0
    while (a * (x / (1 + high * a)) ** 2).sum() > 1:
        high *= 2
    for _ in range(200):
        mu = 0.5 * (low + high)
        outside = (a * (x / (1 + mu * a)) ** 2).sum() > 1
        low, high = (mu, high) if outside else (low, mu)
    return x / (1 + high * a)


@pytest.mark.parametrize("condition", [1e4, 1e6])
def test_an_ill_conditioned_ellipsoid_is_projected_onto_exactly(
    condition: float,
) -> None:
    # Cuts alone take more than 400 gradients, and end without a proof.
    d = 60
    a = condition ** torch.linspace(0.0, 1.0, d, dtype=torch.float64)
    turned = torch.linalg.qr(normal(0, d, d)).Q
    x = 0.4 * normal(1, d)
    w = (turned @ x).requires_grad_()

    def size() -> Tensor:
        return (a * (w @ turned) ** 2).sum()

    caps = {"ellipsoid": oneproj.function(size, curvature="convex") <= 1.0}
    done = oneproj.project(w, caps)
    expected = float((nearest(a, x) - x).norm())
    assert done.status is Status.FEASIBLE
    assert done.distance == pytest.approx(expected, rel=1e-6)
    assert done.lower_bound == pytest.approx(expected, rel=1e-6)
    assert done.gradients <= 120


def test_several_curved_constraints_are_learned_one_by_one() -> None:
    d = 30
    curvatures = [
        (10.0 ** (3.0 * torch.rand(d, generator=seeded(j)))).double() for j in range(3)
    ]
    w = normal(5, d).requires_grad_()
    caps = {
        f"cap {j}": oneproj.function(
            lambda a=a, j=j: (a * (w - 0.02 * j) ** 2).sum(),
            curvature="convex",
        )
        <= 1.0
        for j, a in enumerate(curvatures)
    }
    done = oneproj.project(w, caps)
    assert done.status is Status.FEASIBLE
    assert done.lower_bound == pytest.approx(done.distance, rel=1e-6)
    assert done.gradients <= 120


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
