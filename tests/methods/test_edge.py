"""Steps at the edge of the ball end where a minimum over the ball is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam

import oneproj
from oneproj import NonFiniteError, OneProjection
from oneproj.methods.base_steps import follow_edge_

RADIUS = 0.5


def quadratic(seed: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    """H and t of ``f(x) = (x - t)' H (x - t) / 2``, ill-conditioned, not diagonal."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-1, 1, dim, dtype=torch.float64)
    H = torch.linalg.qr(A)[0] * scales @ torch.linalg.qr(A)[0].T
    return H, torch.randn(dim, generator=generator, dtype=torch.float64)


def minimum(H: Tensor, t: Tensor, center: Tensor) -> Tensor:
    """``argmin f`` in the ball: ``H (x - t) + nu (x - c) = 0``, nu by bisection."""

    def offset(nu: float) -> Tensor:
        found: Tensor = torch.linalg.solve(H + nu * torch.eye(len(t)), H @ (t - center))
        return found

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        outside = float(offset(middle).norm()) > RADIUS
        low, high = (middle, high) if outside else (low, middle)
    return center + offset(high)


def problem(w: Tensor, H: Tensor, t: Tensor, center: Tensor) -> oneproj.Problem:
    objective = oneproj.function(lambda: (w - t) @ H @ (w - t) / 2)
    return oneproj.Problem(w, objective, {}, radius=RADIUS, center=[center])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"method": "penalty-sgd", "base": "adam", "lr": 0.1, "decay": "cosine"}],
)
def test_adam_finds_the_minimum_over_the_ball(
    seed: int, options: dict[str, Any]
) -> None:
    H, t = quadratic(seed)
    center = 0.1 * torch.ones_like(t)
    w = torch.zeros_like(t, requires_grad=True)
    oneproj.solve(problem(w, H, t, center), steps=500, **options)
    x = minimum(H, t, center)
    assert float((x - center).norm()) == pytest.approx(RADIUS)
    # Without the edge's own gradients it ends 0.1 to 0.2 away.
    assert float((w.detach() - x).norm()) < 0.02


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_keeps_its_gradients(momentum: float) -> None:
    w = torch.tensor([0.0, RADIUS], requires_grad=True)
    optimizer = OneProjection(
        [w],
        0.1,
        prox_weight=0.0,
        inner_steps=4,
        radius=RADIUS,
        base=lambda groups: SGD(groups, momentum=momentum),
    )
    for _ in range(3):
        w.grad = torch.tensor([0.5, -3.0])
        optimizer.step()
        assert w.grad.tolist() == [0.5, -3.0]


def run_along_the_edge(optimizer: OneProjection, w: Tensor, steps: int) -> list[float]:
    seen = []
    for k in range(steps):
        w.grad = torch.tensor([1.0, -3.0]) + 0.1 * k * torch.ones(2)
        optimizer.step()
        seen += w.tolist()
    return seen


def at_the_edge() -> tuple[OneProjection, Tensor]:
    w = torch.tensor([0.0, RADIUS], requires_grad=True)
    settings: dict[str, Any] = {"prox_weight": 0.1, "inner_steps": 3, "base": Adam}
    return OneProjection([w], 0.05, radius=RADIUS, **settings), w


def test_a_resumed_run_knows_that_it_was_at_the_edge() -> None:
    first, w = at_the_edge()
    run_along_the_edge(first, w, 4)
    second, v = at_the_edge()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        v.copy_(w)
    assert run_along_the_edge(first, w, 5) == run_along_the_edge(second, v, 5)


def test_an_edge_that_is_not_reached_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(*_: object) -> None:
        message = "the edge was looked at"
        raise AssertionError(message)

    monkeypatch.setattr("oneproj.methods.base_steps.follow_edge_", look)
    optimizer, w = at_the_edge()
    with torch.no_grad():
        w.zero_()
    run_along_the_edge(optimizer, w, 5)
    with torch.no_grad():
        w.fill_(RADIUS)
    with pytest.raises(AssertionError, match="looked at"):
        run_along_the_edge(optimizer, w, 2)


@pytest.mark.parametrize(
    ("point", "gradient", "expected"),
    [
        ([0.0, 0.5], [2.0, -3.0], [2.0, 0.0]),  # out: what is left runs along
        ([0.0, 0.5], [2.0, 3.0], [2.0, 3.0]),  # in: nothing is in the way
        ([0.0, 0.4], [2.0, -3.0], [2.0, -3.0]),  # inside
        ([0.3, 0.4], [-3.0, -4.0], [0.0, 0.0]),  # a minimum over the ball
    ],
)
def test_the_pull_outwards_is_taken_out(
    point: list[float], gradient: list[float], expected: list[float]
) -> None:
    w = torch.tensor(point, requires_grad=True)
    unseen = torch.zeros(3, requires_grad=True)
    w.grad = torch.tensor(gradient)
    follow_edge_([w, unseen], RADIUS, None)
    assert w.grad.tolist() == pytest.approx(expected, abs=1e-6)
    assert unseen.grad is None


def test_an_infinite_gradient_at_the_edge_is_named() -> None:
    optimizer, w = at_the_edge()
    run_along_the_edge(optimizer, w, 2)
    w.grad = torch.tensor([math.inf, -math.inf])
    with pytest.raises(NonFiniteError, match="the gradient"):
        optimizer.step()
