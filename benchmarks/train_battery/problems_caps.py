"""Caps on the risks of classes and groups, and on regions of the plane."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.train_battery.ingredients import (
    Batch,
    class_loss,
    drawn,
    made,
    mlp,
    sign_loss,
    square_loss,
    sum_of_squares,
    table,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean

CAPS = Family("class and group caps")
PLANE = Family("regions of the plane")


@CAPS.case()
def digits_linear_class_caps(seed: int) -> Problem:
    """Digits, linear scores: the risks of three hard classes are capped."""
    data, model = table("digits"), made(seed, lambda: nn.Linear(64, 10))
    loss = class_loss(model)
    capped = {
        f"digit {c}": mean(loss, data.where(data.y == c), curvature="convex") <= 0.05
        for c in (1, 8, 9)
    }
    size = 0.01 * function(lambda: sum_of_squares(model))
    objective = mean(loss, (data.x, data.y)) + size
    return Problem(model.parameters(), objective, capped)


@CAPS.case()
def digits_mlp_ten_caps(seed: int) -> Problem:
    """Digits, the size of a network under caps on the risks of all ten classes."""
    data, model = table("digits"), made(seed, lambda: mlp(64, 24, 10))
    loss = class_loss(model)
    size = function(lambda: sum_of_squares(model))
    capped = {
        f"digit {c}": mean(loss, data.where(data.y == c)) <= 0.15 for c in range(10)
    }
    return Problem(model.parameters(), 0.01 * size, capped)


@CAPS.case()
def wine_class_caps(seed: int) -> Problem:
    """Wine, the size of a linear model under caps on its three classes."""
    data, model = table("wine"), made(seed, lambda: nn.Linear(13, 3))
    loss = class_loss(model)
    capped = {
        f"class {c}": mean(loss, data.where(data.y == c), curvature="convex") <= 0.2
        for c in range(3)
    }
    return Problem(model.parameters(), function(lambda: sum_of_squares(model)), capped)


@CAPS.case()
def iris_one_class(seed: int) -> Problem:
    """Iris, one class must hardly be missed, whatever it costs the others."""
    data, model = table("iris"), made(seed, lambda: nn.Linear(4, 3))
    loss = class_loss(model)
    capped = mean(loss, data.where(data.y == 1), curvature="convex") <= 0.02
    return Problem(
        model.parameters(),
        mean(loss, data.where(data.y != 1)),
        {"versicolor": capped},
        radius=50.0,
    )


@CAPS.case()
def cancer_group_caps(seed: int) -> Problem:
    """Breast cancer, malignant cases in the objective, four groups of benign capped."""
    data, model = table("breast_cancer"), made(seed, lambda: nn.Linear(30, 1))
    loss, benign = sign_loss(model), data.y == 1
    big, rough = data.x[:, 0] > -0.5, data.x[:, 1] > 0
    groups = {"big": big & rough, "smooth": big & ~rough, "small": ~big & rough}
    capped = {
        name: mean(loss, data.where(rows & benign), curvature="convex") <= 0.02
        for name, rows in (groups | {"both": ~big & ~rough}).items()
    }
    return Problem(model.parameters(), mean(loss, data.where(data.y == 0)), capped)


@CAPS.case()
def cancer_mlp_benign_cap(seed: int) -> Problem:
    """Breast cancer, a network: malignant risk under a cap on the benign risk."""
    data, model = table("breast_cancer"), made(seed, lambda: mlp(30, 16, 1))
    loss = sign_loss(model)
    capped = mean(loss, data.where(data.y == 1)) <= 0.01
    size = 1e-3 * function(lambda: sum_of_squares(model))
    objective = mean(loss, data.where(data.y == 0)) + size
    return Problem(model.parameters(), objective, {"benign": capped})


@CAPS.case()
def worst_group(seed: int) -> Problem:
    """Diabetes, the largest of six groups' errors is capped: one kink after another."""
    data, model = table("diabetes"), made(seed, lambda: nn.Linear(10, 1))
    loss = square_loss(model)
    order = data.y.argsort()
    groups = [(data.x[rows], data.y[rows]) for rows in order.chunk(6)]

    def worst() -> Tensor:
        return torch.stack([loss(group).mean() for group in groups]).max()

    capped = function(worst, curvature="convex") <= 0.8
    return Problem(model.parameters(), mean(loss, (data.x, data.y)), {"worst": capped})


@CAPS.case()
def worst_group_network(seed: int) -> Problem:
    """Two spirals' worth of groups: a network, the worst of eight groups is capped."""
    g = drawn(1)
    x = torch.randn(1600, 2, generator=g)
    part = ((torch.atan2(x[:, 1], x[:, 0]) / math.pi + 1) * 4).long().clamp(max=7)
    y = ((x.norm(dim=1) > 1.1) ^ (part % 2 == 0)).long()
    y = torch.where(torch.rand(1600, generator=g) < 0.05, 1 - y, y)
    model = made(seed, lambda: mlp(2, 24, 1, activation=nn.Tanh))
    loss = sign_loss(model)
    groups = [(x[part == k], y[part == k]) for k in range(8)]

    def worst() -> Tensor:
        return torch.stack([loss(group).mean() for group in groups]).max()

    return Problem(
        model.parameters(), mean(loss, (x, y)), {"worst": function(worst) <= 0.5}
    )


@CAPS.case()
def slack_caps(seed: int) -> Problem:
    """Diabetes, a network: three caps that never bind must cost nothing."""
    data, model = table("diabetes"), made(seed, lambda: mlp(10, 16, 1))
    loss = square_loss(model)
    groups = {"low": data.y < -0.5, "high": data.y > 0.5, "all": data.y > -9}
    capped = {
        name: mean(loss, data.where(rows)) <= 5.0 for name, rows in groups.items()
    }
    return Problem(model.parameters(), mean(loss, (data.x, data.y)), capped)


@CAPS.case()
def large_classes(seed: int) -> Problem:
    """Two overlapping clouds of 20,000 points, a network: one's risk is capped."""
    g = drawn(2)
    negative = torch.randn(20_000, 8, generator=g)
    positive = torch.randn(20_000, 8, generator=g) * 1.3 + 0.5
    model = made(seed, lambda: mlp(8, 32, 1))
    loss = sign_loss(model)
    capped = mean(loss, (positive, torch.ones(20_000))) <= 0.3
    objective = mean(loss, (negative, torch.zeros(20_000)))
    return Problem(model.parameters(), objective, {"positive": capped})


def _plane(seed: int, cells: int, cap: float) -> Problem:
    """A function on the plane: its error in every cell of an angle is capped."""
    g = drawn(3)
    x = torch.randn(3000, 2, generator=g)
    y = torch.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * torch.randn(3000, generator=g)
    turn = (torch.atan2(x[:, 1], x[:, 0]) / (2 * math.pi) + 0.5) * cells
    cell = turn.long().clamp(max=cells - 1)
    y = y + 0.3 * (cell % 3 - 1)
    model = made(seed, lambda: mlp(2, 24, 1, activation=nn.Tanh))
    loss = square_loss(model)

    def far(batch: Batch) -> Tensor:
        value: Tensor = model(batch[0])
        return value.squeeze(-1).square()

    capped = {
        f"cell {k}": mean(loss, (x[cell == k], y[cell == k])) <= cap
        for k in range(cells)
    }
    return Problem(model.parameters(), mean(far, (x, y)), capped)


@PLANE.case()
def plane_six_caps(seed: int) -> Problem:
    """A network stays near zero under caps on its error in six regions."""
    return _plane(seed, 6, 0.25)


@PLANE.case()
def plane_twenty_caps(seed: int) -> Problem:
    """The same with twenty regions."""
    return _plane(seed, 20, 0.25)


@PLANE.case(steps=300)
def plane_fifty_caps(seed: int) -> Problem:
    """The same with fifty regions, and fewer updates."""
    return _plane(seed, 50, 0.3)


@PLANE.case()
def polygon(seed: int) -> Problem:
    """Two numbers under 24 tangents of an ellipse: a linear programme, no data."""
    start = torch.randn(2, generator=torch.Generator().manual_seed(seed))
    x = start.requires_grad_()
    angles = torch.arange(24) * (2 * math.pi / 24)
    normals = torch.stack([angles.cos(), angles.sin()], 1)
    bounds = (normals * torch.tensor([2.0, 1.0])).norm(dim=1)

    def tangent(k: int) -> Tensor:
        return normals[k] @ x

    capped = {
        f"side {k}": function(lambda k=k: tangent(k), curvature="linear")  # type: ignore[misc]
        <= bounds[k].item()
        for k in range(24)
    }
    away = torch.tensor([-1.0, -0.7])
    return Problem(x, function(lambda: away @ x + 4.0), capped, radius=10.0)
