"""Rates of decisions as sigmoids, fairness gaps, quantiles, and shapes of functions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.train_battery.ingredients import (
    Batch,
    PerExample,
    applicants,
    drawn,
    fit,
    made,
    mlp,
    positive_rate,
    sign_loss,
    square_loss,
    table,
    weight,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean

RATES = Family("rates of sigmoids")
FAIR = Family("fairness gaps")
QUANTILES = Family("quantile regression")
SHAPES = Family("monotone functions")


@RATES.case()
def false_positive_rate(seed: int) -> Problem:
    """Applicants, linear: at most 5 percent of the negatives are accepted."""
    x, y, _ = applicants()
    model = made(seed, lambda: nn.Linear(6, 1))
    capped = mean(positive_rate(model), x[y == 0]) <= 0.05
    return Problem(
        model.parameters(), mean(sign_loss(model), (x, y)), {"false positives": capped}
    )


@RATES.case()
def false_positive_rate_saturated(seed: int) -> Problem:
    """The same from a start whose sigmoids have no slope: its weights are large."""
    problem = false_positive_rate(seed)
    with torch.no_grad():
        weight, bias = problem.parameters
        weight.mul_(20.0)
        bias.fill_(20.0)
    return problem


@RATES.case()
def false_positive_rate_network(seed: int) -> Problem:
    """Applicants, a network: at most 3 percent of the negatives, sharp sigmoids."""
    x, y, _ = applicants()
    model = made(seed, lambda: mlp(6, 16, 1))
    capped = mean(positive_rate(model, 0.05), x[y == 0]) <= 0.03
    return Problem(
        model.parameters(), mean(sign_loss(model), (x, y)), {"false positives": capped}
    )


@RATES.case()
def recall_floor(seed: int) -> Problem:
    """Breast cancer, raw rate: find 99 percent of the malignant with few alarms."""
    data, model = table("breast_cancer"), made(seed, lambda: nn.Linear(30, 1))
    found = mean(positive_rate(model, 0.5), data.x[data.y == 0]) >= 0.99
    alarms = mean(sign_loss(model), (data.x[data.y == 1], torch.zeros(357)))
    size = 1e-3 * function(lambda: model.weight.square().sum())
    return Problem(model.parameters(), alarms + size, {"recall": found})


@RATES.case()
def churn(seed: int) -> Problem:
    """Applicants: a new model may differ from an old one on 4 percent of them."""
    x, y, member = applicants()
    old = made(100, lambda: nn.Linear(6, 1))
    rows = (x[member], y[member])
    fit(old, sign_loss(old), rows, steps=300, lr=0.03, seed=0)
    with torch.no_grad():
        side = torch.sign(old(x).squeeze(-1))
    model = made(seed, lambda: mlp(6, 16, 1))

    def differs(batch: Batch) -> Tensor:
        return torch.sigmoid(-batch[1] * model(batch[0]).squeeze(-1) / 0.2)

    capped = mean(differs, (x, side)) <= 0.04
    return Problem(
        model.parameters(), mean(sign_loss(model), (x, y)), {"churn": capped}
    )


@FAIR.case()
def parity_gap(seed: int) -> Problem:
    """Applicants, linear: the groups' acceptance rates differ by 2 points at most."""
    x, y, member = applicants()
    model = made(seed, lambda: nn.Linear(6, 1))
    rate = positive_rate(model, 0.2)
    gap = mean(rate, x[member]) - mean(rate, x[~member])
    capped = {"parity": gap <= 0.02, "parity, other way": gap >= -0.02}
    return Problem(model.parameters(), mean(sign_loss(model), (x, y)), capped)


@FAIR.case()
def equal_odds_network(seed: int) -> Problem:
    """Applicants, a network: true and false positive rates differ by a point."""
    x, y, member = applicants()
    model = made(seed, lambda: mlp(6, 16, 1, activation=nn.Tanh))
    rate, capped = positive_rate(model, 0.2), {}
    for label in (0, 1):
        ours, theirs = x[member & (y == label)], x[~member & (y == label)]
        gap = mean(rate, ours) - mean(rate, theirs)
        capped[f"label {label}"] = gap <= 0.01
        capped[f"label {label}, other way"] = gap >= -0.01
    return Problem(model.parameters(), mean(sign_loss(model), (x, y)), capped)


@FAIR.case()
def risk_gap(seed: int) -> Problem:
    """Diabetes, linear: the errors of two halves differ by 0.05 at most."""
    data, model = table("diabetes"), made(seed, lambda: nn.Linear(10, 1))
    loss, high = square_loss(model), data.x[:, 2] > 0.8
    gap = mean(loss, data.where(high)) - mean(loss, data.where(~high))
    objective = mean(loss, (data.x, data.y))
    return Problem(
        model.parameters(), objective, {"gap": gap <= 0.0, "other way": gap >= -0.05}
    )


def _pinball(model: nn.Module, quantile: float, column: int = 0) -> PerExample:
    def losses(batch: Batch) -> Tensor:
        error: Tensor = batch[1] - model(batch[0])[:, column]
        return torch.maximum(quantile * error, (quantile - 1.0) * error)

    return losses


@QUANTILES.case()
def quantile_coverage(seed: int) -> Problem:
    """Diabetes: the mean prediction is low, but 90 percent of targets are below it."""
    data, model = table("diabetes"), made(seed, lambda: nn.Linear(10, 1))

    def covered(batch: Batch) -> Tensor:
        return torch.sigmoid((model(batch[0]).squeeze(-1) - batch[1]) / 0.1)

    def width(batch: Batch) -> Tensor:
        value: Tensor = model(batch[0])
        return (value.squeeze(-1) + 3.0).square()

    capped = mean(covered, (data.x, data.y)) >= 0.9
    return Problem(
        model.parameters(), mean(width, (data.x, data.y)), {"coverage": capped}
    )


@QUANTILES.case()
def quantile_levels(seed: int) -> Problem:
    """Diabetes, a network: the pinball loss of one level under a cap on two others."""
    data, model = table("diabetes"), made(seed, lambda: mlp(10, 16, 3))
    rows = (data.x, data.y)
    capped = {
        "0.1": mean(_pinball(model, 0.1, 0), rows) <= 0.09,
        "0.9": mean(_pinball(model, 0.9, 2), rows) <= 0.1,
    }
    size = function(lambda: weight(model, 0).square().sum())
    objective = mean(_pinball(model, 0.5, 1), rows) + 1e-3 * size
    return Problem(model.parameters(), objective, capped)


@QUANTILES.case()
def quantiles_do_not_cross(seed: int) -> Problem:
    """Two quantiles of a noisy sine: the upper is nowhere below the lower."""
    g = drawn(11)
    x = 6.0 * torch.rand(1000, 1, generator=g) - 3.0
    y = torch.sin(x[:, 0]) + 0.3 * torch.randn(1000, generator=g) * (x[:, 0] > 0)
    model = made(seed, lambda: mlp(1, 24, 2, activation=nn.Tanh))
    low, high = _pinball(model, 0.25, 0), _pinball(model, 0.75, 1)
    grid = torch.linspace(-3.0, 3.0, 61)[:, None]

    def crossing() -> Tensor:
        both: Tensor = model(grid)
        return (both[:, 0] - both[:, 1] + 0.2).max()

    def loss(batch: Batch) -> Tensor:
        return low(batch) + high(batch)

    return Problem(
        model.parameters(), mean(loss, (x, y)), {"order": function(crossing) <= 0.0}
    )


def _curve() -> tuple[Tensor, Tensor]:
    g = drawn(12)
    x = 4.0 * torch.rand(600, 1, generator=g) - 2.0
    y = x[:, 0] + torch.sin(4.0 * x[:, 0]) + 0.1 * torch.randn(600, generator=g)
    return x, y


def _slopes(model: nn.Module, grid: Tensor) -> Tensor:
    values: Tensor = model(grid).squeeze(-1)
    return values.diff() / grid[:, 0].diff()


@SHAPES.case()
def monotone_mean(seed: int) -> Problem:
    """A network fits a wave: the mean of its falling slopes is capped."""
    (x, y), model = _curve(), made(seed, lambda: mlp(1, 32, 1, activation=nn.Tanh))
    grid = torch.linspace(-2.0, 2.0, 81)[:, None]
    falls = function(lambda: (-_slopes(model, grid)).relu().mean())
    objective = mean(square_loss(model), (x, y))
    return Problem(model.parameters(), objective, {"falls": falls <= 1e-3})


@SHAPES.case()
def monotone_everywhere(seed: int) -> Problem:
    """The same with the steepest fall: a maximum over the grid."""
    (x, y), model = _curve(), made(seed, lambda: mlp(1, 32, 1, activation=nn.Tanh))
    grid = torch.linspace(-2.0, 2.0, 81)[:, None]
    falls = function(lambda: (-_slopes(model, grid)).max())
    objective = mean(square_loss(model), (x, y))
    return Problem(model.parameters(), objective, {"falls": falls <= 0.0})


@SHAPES.case()
def lipschitz(seed: int) -> Problem:
    """The same wave with slopes of at most 1.5 in size, up and down."""
    (x, y), model = _curve(), made(seed, lambda: mlp(1, 32, 1, activation=nn.Softplus))
    grid = torch.linspace(-2.0, 2.0, 81)[:, None]
    steepest = function(lambda: _slopes(model, grid).abs().max())
    objective = mean(square_loss(model), (x, y))
    return Problem(model.parameters(), objective, {"slope": steepest <= 1.5})


@SHAPES.case(steps=487)
def convex_polynomial(seed: int) -> Problem:
    """A polynomial of degree 7 with convex values; updates are a prime number."""
    x, y = _curve()
    powers = torch.arange(8)
    start = 0.1 * torch.randn(8, generator=torch.Generator().manual_seed(seed))
    w = start.requires_grad_()
    grid = torch.linspace(-1.0, 1.0, 41)[:, None] ** powers

    def loss(batch: Batch) -> Tensor:
        return ((batch[0] / 2.0) ** powers @ w - batch[1]).square()

    bend = function(lambda: (-(grid @ w).diff(n=2)).max(), curvature="convex")
    return Problem(w, mean(loss, (x, y)), {"bend": bend <= 0.0}, radius=50.0)
