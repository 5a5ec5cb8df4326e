"""Starts that are far from feasible, or where nothing has a slope, and uneven units."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from benchmarks.train_battery.ingredients import (
    Batch,
    class_loss,
    drawn,
    fit,
    made,
    mlp,
    noisy,
    sign_loss,
    square_loss,
    sum_of_squares,
    table,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean, sets

STARTS = Family("starts far from feasible")
ASLEEP = Family("starts without a slope")
UNITS = Family("uneven units")


def _two_tasks() -> tuple[Batch, Batch]:
    g = drawn(23)
    old, new = torch.randn(2, 1000, 10, generator=g)
    old_y = (old[:, 0] - 0.5 * old[:, 1] > 0).long()
    new_y = (new[:, 0] + new[:, 1] > 0).long()
    return (old, old_y), (new, new_y)


@STARTS.case()
def far_linear(seed: int) -> Problem:
    """A linear model that separates one task perfectly must now keep another's cap."""
    old, new = _two_tasks()
    model = made(seed, lambda: nn.Linear(10, 1))
    fit(model, sign_loss(model), old, steps=600, lr=0.5, seed=seed)
    loss = sign_loss(model)
    capped = mean(loss, new, curvature="convex") <= 0.4
    return Problem(model.parameters(), mean(loss, old), {"new task": capped})


@STARTS.case()
def far_network(seed: int) -> Problem:
    """A network that separates one task perfectly must now keep another's cap."""
    old, new = _two_tasks()
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


@STARTS.case()
def far_separated_iris(seed: int) -> Problem:
    """Iris: a start that separates one species has no gradient, and must change."""
    data = table("iris")
    model = made(seed, lambda: nn.Linear(4, 1))
    first = (data.y == 0).long()
    fit(model, sign_loss(model), (data.x, first), steps=300, lr=0.1, seed=seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    loss, other = sign_loss(model), (data.y == 1).long()
    rows = data.y > 0
    capped = mean(loss, (data.x[rows], other[rows])) <= 0.5
    return Problem(model.parameters(), mean(loss, (data.x, first)), {"other": capped})


def _to_change(seed: int, scale: float, unit: float) -> Problem:
    """Labels that the start separates; half of the examples are to change theirs."""
    g = drawn(24)
    y = torch.tensor([1.0, -1.0]).repeat(20)
    x = torch.randn(40, 3, generator=g)
    x[:, 0] = y * (1.0 + x[:, 0].abs())
    x = unit * x
    start = torch.tensor([scale / unit, 0.0, 0.0])
    start += 0.01 * torch.randn(3, generator=torch.Generator().manual_seed(seed)) / unit
    w = start.requires_grad_()
    changed = x[:, 1] > 0

    def loss(batch: Batch) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    capped = mean(loss, (x[changed], -y[changed])) <= 0.5
    return Problem(w, mean(loss, (x, y)), {"changed": capped})


@STARTS.case()
def far_weights_of_400(seed: int) -> Problem:
    """A weight of 400 separates; half of the examples are to change their label."""
    return _to_change(seed, 400.0, 1.0)


@STARTS.case()
def far_large_features(seed: int) -> Problem:
    """The same with features of 30 and a short way: strengths have to do it."""
    return _to_change(seed, 40.0, 30.0)


@STARTS.case()
def far_least_squares(seed: int) -> Problem:
    """A start at the minimum of an uneven parabola, outside of a ball."""
    goal = 3.0 + torch.randn(2, generator=torch.Generator().manual_seed(seed)) / 10
    w = goal.clone().requires_grad_()
    steep = torch.tensor([10.0, 1.0])
    objective = function(lambda: steep @ (w - goal).square())
    return Problem(w, objective, {"size": sets.Ball(1.0).on(w)}, radius=10.0)


def _asleep(seed: int, bias: float) -> Problem:
    """Logistic regression under a recall of sharp sigmoids, all of which are off."""
    g = drawn(25)
    x = torch.randn(400, 3, generator=g)
    x[:, 2] = 1.0
    sign = torch.sign(x[:, 0] + torch.randn(400, generator=g))
    w = (0.1 * torch.randn(3, generator=torch.Generator().manual_seed(seed))).clone()
    w[2] = bias
    w.requires_grad_()
    risk = mean(lambda batch: softplus(-batch[1] * (batch[0] @ w)), (x, sign))
    recall = mean(lambda rows: torch.sigmoid(5.0 * (rows @ w)), x[sign > 0])
    return Problem(w, risk, {"recall": recall >= 0.95})


@ASLEEP.case()
def asleep_by_5(seed: int) -> Problem:
    """A recall whose sigmoids are all off at the start: a bias of -5."""
    return _asleep(seed, -5.0)


@ASLEEP.case()
def asleep_by_12(seed: int) -> Problem:
    """The same with a bias of -12: slopes of 1e-26."""
    return _asleep(seed, -12.0)


@ASLEEP.case()
def rare_class_recall(seed: int) -> Problem:
    """A rare class must be found, from the model that was fitted without that."""
    g = drawn(26)
    x = torch.randn(2000, 6, generator=g)
    score = x[:, 0] + x[:, 1] + torch.randn(2000, generator=g)
    y = (score > 3.3).long()
    model = made(seed, lambda: nn.Linear(6, 1))
    fit(model, sign_loss(model), (x, y), steps=500, lr=0.05, seed=seed)
    recall = mean(lambda r: torch.sigmoid(5.0 * model(r).squeeze(-1)), x[y == 1])
    objective = mean(sign_loss(model), (x, y))
    return Problem(model.parameters(), objective, {"recall": recall >= 0.9})


def _rate_under_rate(seed: int, name: str, hidden: int, cap: float) -> Problem:
    """One error rate is minimised under a cap on the other; some labels are wrong."""
    data = table(name)
    y = noisy((data.y == 1).long(), (0, 1))
    inputs = data.x.shape[1]
    widths = (inputs, hidden, 1) if hidden else (inputs, 1)
    model = made(seed, lambda: mlp(*widths))

    def misses(batch: Batch) -> Tensor:
        margin = (2.0 * batch[1].float() - 1.0) * model(batch[0]).squeeze(-1)
        return torch.sigmoid(-4.0 * margin)

    rates = [mean(misses, (data.x[y == k], y[y == k])) for k in (0, 1)]
    return Problem(model.parameters(), rates[0], {"missed": rates[1] <= cap})


@ASLEEP.case()
def rate_under_rate_cancer(seed: int) -> Problem:
    """Breast cancer with wrong labels: one error rate under a cap on the other."""
    return _rate_under_rate(seed, "breast_cancer", 0, 0.04)


@ASLEEP.case()
def rate_under_rate_digits(seed: int) -> Problem:
    """Digits, is it a 1? A network, with wrong labels."""
    return _rate_under_rate(seed, "digits", 8, 0.1)


@ASLEEP.case()
def rate_under_rate_wine(seed: int) -> Problem:
    """Wine with wrong labels."""
    return _rate_under_rate(seed, "wine", 0, 0.03)
