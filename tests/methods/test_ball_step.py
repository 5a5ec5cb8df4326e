"""The step that the rivals share."""

from __future__ import annotations

import math

import pytest
import torch

import oneproj


def path(base: str, decay: object, steps: int = 5) -> list[float]:
    """Where penalty SGD goes on f(w) = w^2 / 2, from 1, when nothing is violated."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    half_square = oneproj.function(lambda: w.square().sum() / 2)
    problem = oneproj.Problem(w, half_square, {"loose": half_square <= 9.0})
    seen: list[float] = []
    oneproj.solve(
        problem,
        method="penalty-sgd",
        steps=steps,
        lr=0.5,
        base=base,
        decay=decay,
        callbacks=lambda _: seen.append(w.item()),
    )
    return seen


def inverse_root(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: (k + 1) ** -0.5)


@pytest.mark.parametrize(
    ("decay", "factors"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.8, 0.6, 0.4, 0.2]),
        (inverse_root, [1.0, 2**-0.5, 3**-0.5, 4**-0.5, 5**-0.5]),
    ],
)
def test_the_size_decays_as_it_says(decay: object, factors: list[float]) -> None:
    # With gradient w each step multiplies w by 1 - eta_k.
    expected = [math.prod(1 - 0.5 * f for f in factors[:k]) for k in range(1, 6)]
    assert path("sgd", decay) == pytest.approx(expected, rel=1e-12)


def test_other_base_steps_are_torchs_own() -> None:
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    adam, expected = torch.optim.Adam([w], lr=0.5, betas=(0.9, 0.95)), []
    for _ in range(5):
        w.grad = w.detach().clone()
        adam.step()
        expected.append(w.item())
    assert path("adam", "constant") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", ["penalty-sgd", "lagrangian"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": math.nan}, "lr must be one finite number >= 0, got nan"),
        ({"lr": -0.1}, "lr must be one finite number >= 0, got -0.1"),
        ({"base": "newton"}, "no base step 'newton'"),
        ({"decay": "exponential"}, "decay must be"),
    ],
)
def test_settings_without_meaning_are_refused(
    method: str, options: dict[str, object], message: str
) -> None:
    w = torch.ones(1, requires_grad=True)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {})
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(problem, method=method, **options)
