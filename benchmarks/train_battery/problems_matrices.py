"""Portfolios, low rank, norms of matrices, and balls whose edge is reached."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.train_battery.ingredients import (
    class_loss,
    drawn,
    made,
    mlp,
    sign_loss,
    table,
    weight,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean, sets

PORTFOLIOS = Family("portfolios")
MATRICES = Family("norms of matrices")
BALLS = Family("edge of the ball")


def _returns(assets: int = 20) -> Tensor:
    """A thousand days of correlated returns, in percent, riskier ones higher."""
    g = drawn(20)
    factors = torch.randn(1000, 3, generator=g)
    loads = torch.randn(3, assets, generator=g)
    risk = torch.linspace(0.3, 2.0, assets)
    noise = torch.randn(1000, assets, generator=g)
    return 0.3 * risk * (factors @ loads / 2.0 + noise) + 0.1 * risk


def _simplex_start(seed: int, n: int) -> Tensor:
    weights = torch.rand(n, generator=torch.Generator().manual_seed(seed))
    return (weights / weights.sum()).requires_grad_()


@PORTFOLIOS.case()
def least_variance(seed: int) -> Problem:
    """Weights of a portfolio: least mean square under a floor on the return."""
    days = _returns()
    w = _simplex_start(seed, days.shape[1])
    earned = mean(lambda day: day @ w, days, curvature="linear")
    return Problem(
        w,
        mean(lambda day: (day @ w).square(), days),
        {"simplex": sets.Simplex().on(w), "return": earned >= 0.14},
    )


@PORTFOLIOS.case()
def tail_risk(seed: int) -> Problem:
    """A portfolio's expected shortfall is capped, and its return sought."""
    days = _returns()
    w = _simplex_start(seed, days.shape[1])
    level = torch.zeros(1, requires_grad=True)

    def shortfall(day: Tensor) -> Tensor:
        return level + (-(day @ w) - level).relu() / 0.1

    capped = mean(shortfall, days, curvature="convex") <= 0.4
    return Problem(
        [w, level],
        mean(lambda day: 1.0 - day @ w, days),
        {"simplex": sets.Simplex().on(w), "shortfall": capped},
    )


@PORTFOLIOS.case()
def turnover(seed: int) -> Problem:
    """A portfolio moves from the present one by a limited sum of changes."""
    days = _returns(50)
    w = _simplex_start(seed, 50)
    moved = function(lambda: (w - 0.02).abs().sum(), curvature="convex")
    return Problem(
        w,
        mean(lambda day: torch.exp(-(day @ w)), days),
        {"simplex": sets.Simplex().on(w), "turnover": moved <= 0.6},
    )


def _ratings() -> tuple[Tensor, Tensor, Tensor]:
    """Noisy entries of a matrix of rank 3: row, column, value."""
    g = drawn(21)
    full = torch.randn(40, 3, generator=g) @ torch.randn(3, 30, generator=g)
    rows = torch.randint(40, (700,), generator=g)
    columns = torch.randint(30, (700,), generator=g)
    values = full[rows, columns] + 0.3 * torch.randn(700, generator=g)
    return rows, columns, values


def _matrix(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (0.1 * torch.randn(40, 30, generator=generator)).requires_grad_()


@MATRICES.case()
def nuclear_set(seed: int) -> Problem:
    """Fill in a matrix inside a ball of the nuclear norm, as a set."""
    W, data = _matrix(seed), _ratings()

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return (W[batch[0], batch[1]] - batch[2]).square()

    return Problem(W, mean(loss, data), {"nuclear": sets.NuclearBall(70.0).on(W)})


@MATRICES.case()
def nuclear_function(seed: int) -> Problem:
    """The same with the nuclear norm as a function."""
    W, data = _matrix(seed), _ratings()

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return (W[batch[0], batch[1]] - batch[2]).square()

    size = function(lambda: torch.linalg.matrix_norm(W, "nuc"), curvature="convex")
    return Problem(W, mean(loss, data), {"nuclear": size <= 70.0})


@MATRICES.case()
def low_rank(seed: int) -> Problem:
    """The same with a rank of at most 3, as a set."""
    W, data = _matrix(seed), _ratings()

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return (W[batch[0], batch[1]] - batch[2]).square()

    return Problem(W, mean(loss, data), {"rank": sets.Rank(3).on(W)}, radius=80.0)


@MATRICES.case()
def spectral_layers(seed: int) -> Problem:
    """Digits, a network: the spectral norms of both layers are capped, as functions."""
    data, model = table("digits"), made(seed, lambda: mlp(64, 16, 10))
    capped = {
        f"layer {k}": function(
            lambda k=k: torch.linalg.matrix_norm(weight(model, k), 2)  # type: ignore[misc]
        )
        <= 1.0
        for k in (0, 2)
    }
    objective = mean(class_loss(model), (data.x, data.y))
    return Problem(model.parameters(), objective, capped)


@MATRICES.case()
def spectral_set(seed: int) -> Problem:
    """Digits, linear scores inside a ball of the spectral norm, as a set."""
    data, model = table("digits"), made(seed, lambda: nn.Linear(64, 10))
    objective = mean(class_loss(model), (data.x, data.y))
    capped = {"spectral": sets.SpectralBall(0.6).on(model.weight)}
    return Problem(model.parameters(), objective, capped)


@MATRICES.case()
def largest_row_norm(seed: int) -> Problem:
    """Digits, a network: the largest norm of a row of its first layer is capped."""
    data, model = table("digits"), made(seed, lambda: mlp(64, 32, 10))
    largest = function(lambda: weight(model, 0).norm(dim=1).max(), curvature="convex")
    objective = mean(class_loss(model), (data.x, data.y))
    return Problem(model.parameters(), objective, {"row": largest <= 0.15})


@MATRICES.case()
def nearly_orthogonal(seed: int) -> Problem:
    """A linear code of digits, with a gain of 1.5: its rows are nearly orthonormal."""
    data, model = table("digits"), made(seed, lambda: nn.Linear(64, 8, bias=False))

    def loss(x: Tensor) -> Tensor:
        error: Tensor = x - 1.5 * model(x) @ model.weight
        return error.square().mean(1)

    def defect() -> Tensor:
        gram = model.weight @ model.weight.T
        return (gram - torch.eye(8)).square().sum()

    return Problem(
        model.parameters(), mean(loss, data.x), {"defect": function(defect) <= 0.01}
    )


@BALLS.case()
def ball_linear(seed: int) -> Problem:
    """Applicable to all theorems: a linear model at the edge of a small ball."""
    data, model = table("breast_cancer"), made(seed, lambda: nn.Linear(30, 1))
    loss = sign_loss(model)
    capped = mean(loss, data.where(data.y == 1), curvature="convex") <= 0.15
    return Problem(
        model.parameters(),
        mean(loss, data.where(data.y == 0)),
        {"benign": capped},
        radius=1.0,
    )


@BALLS.case()
def ball_network(seed: int) -> Problem:
    """Digits, a network at the edge of a ball, under caps on two classes."""
    data, model = table("digits"), made(seed, lambda: mlp(64, 16, 10))
    loss = class_loss(model)
    capped = {f"digit {c}": mean(loss, data.where(data.y == c)) <= 0.08 for c in (1, 8)}
    objective = mean(loss, (data.x, data.y))
    return Problem(model.parameters(), objective, capped, radius=6.0)


@BALLS.case()
def ball_uneven(seed: int) -> Problem:
    """Least squares with uneven columns at the edge of a ball off the origin."""
    g = drawn(22)
    x = torch.randn(1000, 12, generator=g) * torch.logspace(-1.0, 0.7, 12)
    y = x @ torch.ones(12) + 0.1 * torch.randn(1000, generator=g)
    w = (
        0.1 * torch.randn(12, generator=torch.Generator().manual_seed(seed))
    ).requires_grad_()
    low = mean(lambda batch: batch @ w, x.abs(), curvature="linear") <= 4.0
    objective = mean(lambda batch: (batch[0] @ w - batch[1]).square(), (x, y))
    return Problem(
        w, objective, {"size": low}, radius=1.5, center=[torch.full((12,), 0.2)]
    )
