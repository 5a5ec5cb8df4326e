"""Portfolios, low rank, norms of matrices, balls whose edge is reached, hard starts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.train_battery.ingredients import (
    Batch,
    class_loss,
    drawn,
    fit,
    made,
    mlp,
    sign_loss,
    square_loss,
    sum_of_squares,
    table,
    weight,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean, sets

PORTFOLIOS = Family("portfolios")
MATRICES = Family("norms of matrices")
BALLS = Family("edge of the ball")
STARTS = Family("starts far from feasible")
UNITS = Family("uneven units")


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


def _two_tasks(seed: int) -> tuple[Batch, Batch]:
    del seed
    g = drawn(23)
    old, new = torch.randn(2, 1000, 10, generator=g)
    old_y = (old[:, 0] - 0.5 * old[:, 1] > 0).long()
    new_y = (new[:, 0] + new[:, 1] > 0).long()
    return (old, old_y), (new, new_y)


@STARTS.case()
def far_linear(seed: int) -> Problem:
    """A linear model that separates one task perfectly must now keep another's cap."""
    old, new = _two_tasks(seed)
    model = made(seed, lambda: nn.Linear(10, 1))
    fit(model, sign_loss(model), old, steps=600, lr=0.5, seed=seed)
    loss = sign_loss(model)
    capped = mean(loss, new, curvature="convex") <= 0.4
    return Problem(model.parameters(), mean(loss, old), {"new task": capped})


@STARTS.case()
def far_network(seed: int) -> Problem:
    """A network that separates one task perfectly must now keep another's cap."""
    old, new = _two_tasks(seed)
    model = made(seed, lambda: mlp(10, 16, 1))
    fit(model, sign_loss(model), old, steps=600, lr=0.1, seed=seed)
    loss = sign_loss(model)
    capped = mean(loss, new) <= 0.4
    return Problem(model.parameters(), mean(loss, old), {"new task": capped})


@STARTS.case()
def far_intercept(seed: int) -> Problem:
    """Diabetes with targets as they are: the mean prediction must be at least 160."""
    data, model = table("diabetes"), made(seed, lambda: nn.Linear(10, 1))
    y = 152.0 + 77.0 * data.y
    predicted = mean(lambda x: model(x).squeeze(-1), data.x, curvature="linear")
    objective = 1e-3 * mean(square_loss(model), (data.x, y))
    return Problem(model.parameters(), objective, {"mean": predicted >= 160.0})


@STARTS.case()
def far_scaled_network(seed: int) -> Problem:
    """Digits, a network whose start is five times too large, under class caps."""
    data, model = table("digits"), made(seed, lambda: mlp(64, 16, 10))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5.0)
    loss = class_loss(model)
    capped = {f"digit {c}": mean(loss, data.where(data.y == c)) <= 0.02 for c in (1, 8)}
    size = 1e-3 * function(lambda: sum_of_squares(model))
    objective = mean(loss, (data.x, data.y)) + size
    return Problem(model.parameters(), objective, capped)


@UNITS.case()
def raw_cancer(seed: int) -> Problem:
    """Breast cancer with features in their own units, from 0.001 to 4,000."""
    data, model = table("breast_cancer"), made(seed, lambda: nn.Linear(30, 1))
    loss, benign = sign_loss(model), data.y == 1
    rows, others = data.raw[benign], data.raw[~benign]
    capped = mean(loss, (rows, data.y[benign]), curvature="convex") <= 0.2
    objective = mean(loss, (others, data.y[~benign]))
    return Problem(model.parameters(), objective, {"benign": capped})


@UNITS.case()
def raw_wine_network(seed: int) -> Problem:
    """Wine with features in their own units, a network, one class capped."""
    data, model = table("wine"), made(seed, lambda: mlp(13, 16, 3))
    loss = class_loss(model)
    capped = mean(loss, (data.raw[data.y == 1], data.y[data.y == 1])) <= 0.3
    return Problem(
        model.parameters(), mean(loss, (data.raw, data.y)), {"class 1": capped}
    )


@UNITS.case()
def uneven_terms(seed: int) -> Problem:
    """Wine: an objective in thousands, one cap in thousandths, one in thousands."""
    data, model = table("wine"), made(seed, lambda: nn.Linear(13, 3))
    loss = class_loss(model)
    risks = [mean(loss, data.where(data.y == c), curvature="convex") for c in range(2)]
    capped = {"small": 1e-3 * risks[0] <= 1e-5, "large": 1e3 * risks[1] <= 20.0}
    size = 10.0 * function(lambda: sum_of_squares(model))
    objective = 1e3 * mean(loss, data.where(data.y == 2)) + size
    return Problem(model.parameters(), objective, capped)
