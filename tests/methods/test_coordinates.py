"""Units come from features; what the weights behind a layer make small is no unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj.methods.slsqp_driver import parameter_units
from oneproj.results import Counts

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]


def network(last: float) -> oneproj.Problem:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.linspace(-0.6, 0.7, p.numel()).reshape(p.shape))
        model[2].weight.mul_(last)

    def score(x: Tensor) -> Tensor:
        return model(x)[:, 0]

    loss = oneproj.mean(lambda b: (score(b[0]) - b[1]).square(), data=(X, Y))
    cap = oneproj.mean(score, data=X) <= 0.5
    return oneproj.Problem(model.parameters(), loss, {"cap": cap})


@pytest.mark.parametrize("last", [1e-2, 1e-4, 1e-6])
def test_a_last_layer_near_zero_makes_no_units(last: float) -> None:
    problem = network(last)
    start = [p.detach().clone() for p in problem.parameters]
    units = parameter_units(problem, Counts())
    np.testing.assert_array_equal(units, np.ones_like(units))
    assert all(map(torch.equal, start, problem.parameters))
    near = oneproj.solve(network(0.1), method="slsqp", steps=60).objective
    small = oneproj.solve(problem, method="slsqp", steps=60).objective
    assert small <= 2.0 * near


@pytest.mark.parametrize("sizes", [(1.0, 1.0, 1.0), (1.0, 30.0, 1000.0)])
def test_features_do(sizes: tuple[float, ...]) -> None:
    score, x = nn.Linear(3, 1).double(), X * torch.tensor(sizes)
    loss = oneproj.mean(lambda b: (score(b)[:, 0] - 1.0).square(), data=x)
    units = parameter_units(oneproj.Problem(score.parameters(), loss, {}), Counts())
    np.testing.assert_allclose(units[0] / units[:3], sizes, rtol=1.0)
    assert not np.allclose(units, 1.0, rtol=1e-3)


def test_a_function_that_fails_one_unit_away_is_not_asked_again() -> None:
    scale = torch.full((), 2.0, dtype=torch.float64, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        if not 1.9 < float(scale.detach()) < 2.1:
            message = "scale must be near 2"
            raise ValueError(message)
        return (x[:, 0] / scale).square()

    problem = oneproj.Problem(scale, oneproj.mean(loss, data=X), {})
    assert parameter_units(problem, Counts()) > 0
    assert scale.item() == 2.0
