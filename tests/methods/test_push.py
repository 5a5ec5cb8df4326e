"""Pushes out of all proportion: shortened, and what that is for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj.methods.strength import limited_push


def test_what_is_short_enough_stays_as_it_is() -> None:
    w = torch.zeros(2, requires_grad=True)
    w.grad = torch.tensor([1.0, 0.0])
    with limited_push([w], 5.0):
        w.grad += torch.tensor([3.0, 4.0])
    assert w.grad.tolist() == [4.0, 4.0]


def test_the_length_is_that_over_all_parameters_with_or_without_a_gradient() -> None:
    a, b, c = (torch.zeros(1, requires_grad=True) for _ in range(3))
    a.grad = torch.ones(1)
    with limited_push([a, b, c], 5.0):
        a.grad += 30.0
        b.grad = torch.tensor([40.0])
    assert a.grad.item() == pytest.approx(4.0)
    assert b.grad.item() == pytest.approx(4.0)
    assert c.grad is None


def saturated(bias: float) -> oneproj.Problem:
    """A recall whose sigmoids are all off at the start, and the risk of the score."""
    generator = torch.Generator().manual_seed(100)
    x = torch.randn(500, 5, generator=generator)
    sign = (x[:, 0] + 0.5 * torch.randn(500, generator=generator)).sign()
    w = torch.zeros(6)
    w[5] = bias
    w.requires_grad_()

    def scores(rows: Tensor) -> Tensor:
        return rows @ w[:5] + w[5]

    risk = oneproj.mean(lambda b: softplus(-b[1] * scores(b[0])), data=(x, sign))
    recall = oneproj.mean(lambda rows: torch.sigmoid(5 * scores(rows)), x[sign > 0])
    return oneproj.Problem(w, risk, {"recall": recall >= 0.95})


@pytest.mark.parametrize("bias", [0.0, -5.0, -8.0, -12.0])
def test_a_plateau_at_the_start_is_left_and_forgotten(bias: float) -> None:
    """Its strength of 10^14 would push with 10^9 as the sigmoids wake up."""
    optimum = oneproj.solve(saturated(0.0), steps=500, method="slsqp").objective
    solution = oneproj.solve(saturated(bias), steps=500)
    assert solution.objective == pytest.approx(optimum, rel=2e-3)
