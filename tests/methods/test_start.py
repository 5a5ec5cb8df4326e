"""The start of a run: settings and parameters that are refused, moved or told of."""

from __future__ import annotations

import math

import pytest
import torch

from oneproj import InvalidProblemError, OneProjection, OneprojWarning
from oneproj.vectors import project_ball_


def test_start_outside_the_ball_is_projected_and_said() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    with pytest.warns(OneprojWarning, match=r"lies 4 outside the safeguard ball"):
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=5, radius=1.0)
    torch.testing.assert_close(w.detach(), torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either lr"),
        ({"lr": 0.1, "strong_convexity": 1.0}, "either lr"),
        ({"lr": -0.1}, "lr must be one finite number >= 0, got -0.1"),
        ({"strong_convexity": 0.0}, "strong_convexity must be one finite number > 0"),
        ({"lr": 0.1, "prox_weight": -1.0}, "prox_weight must be one finite number"),
        (
            {"lr": 0.1, "inner_steps": 0},
            "inner_steps must be a whole number >= 1, got 0",
        ),
        ({"lr": 0.1, "inner_steps": 2.5}, "inner_steps must be a whole .* got 2.5"),
        ({"lr": 0.1, "center": [torch.ones(3)]}, "one tensor per trainable"),
        ({"lr": 0.1, "first_index": 5}, "first_index must be 0 or 1"),
        ({"lr": 0.1, "radius": 0.0}, "radius must be one number > 0, got 0"),
        ({"lr": 0.1, "radius": math.nan}, "radius must be one number > 0, got nan"),
        ({"lr": 0.1, "late_weight": -1.0}, "late_weight must be one .* got -1.0"),
        ({"lr": 0.1, "select": "best"}, 'select must be "last" or "random"'),
        ({"lr": 0.1, "select": "random"}, "needs outer_steps >= 1 and"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    w = torch.zeros(1, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=message):
        OneProjection([w], **({"prox_weight": 0.1, "inner_steps": 5} | settings))


def test_a_mean_that_the_precision_cannot_hold_is_said() -> None:
    w = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
    with pytest.warns(OneprojWarning, match="later points would not count"):
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2000)


def test_a_base_that_needs_a_closure_is_refused() -> None:
    w = torch.zeros(3, requires_grad=True)
    with pytest.raises(
        InvalidProblemError, match="without a closure, but it made a LB"
    ):
        OneProjection([w], 0.1, prox_weight=1, inner_steps=2, base=torch.optim.LBFGS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_point_that_an_earlier_run_left_on_the_edge_is_no_news(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        w = 9.0 * torch.randn(7, generator=generator, dtype=dtype)
        project_ball_([w], 3.0, None)
        w.requires_grad_()
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=3.0)


def test_a_center_of_another_precision_is_converted() -> None:
    w = torch.zeros(2, requires_grad=True)
    center = [torch.ones(2, dtype=torch.float64)]
    made = OneProjection(
        [w], 9.0, prox_weight=0.1, inner_steps=2, radius=1.5, center=center
    )
    w.grad = torch.ones(2)
    made.step()
    assert (w - 1.0).norm().item() == pytest.approx(1.5)


def test_frozen_parameters_alone_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="nothing to optimise"):
        OneProjection([torch.zeros(2)], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
