"""Mistakes whose raw errors say little: each is answered with what to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import oneproj


def rows(n: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator)
    return x, torch.arange(n) % 2


def test_a_loss_with_two_arguments_is_told_of_the_batch() -> None:
    model = nn.Linear(3, 2)
    risk = oneproj.mean(
        lambda x, y: cross_entropy(model(x), y, reduction="none"),  # type: ignore[misc,arg-type]
        data=rows(),
    )
    with pytest.raises(TypeError, match="positional argument") as told:
        oneproj.Problem(model.parameters(), risk, {})
    (note,) = told.value.__notes__
    assert note.startswith("In the function of 'objective', called with one argument, ")


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Linear(3, 2), (9, 3)), (nn.Conv2d(1, 2, 3), (9, 1, 5, 5))]
)
def test_data_of_another_precision_is_named(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    data = torch.ones(shape, dtype=torch.float64)
    risk = oneproj.mean(lambda x: layer(x).flatten(1).sum(1), data=data)
    with pytest.raises(RuntimeError) as told:
        oneproj.Problem(layer.parameters(), risk, {})
    assert "the batch float64 [3, " in told.value.__notes__[0]


def test_other_runtime_errors_stay_what_they_are() -> None:
    w = torch.ones(3, requires_grad=True)

    def out_of_order(_: Tensor) -> Tensor:
        message = "the float is broken"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the float is broken"):
        oneproj.Problem(w, oneproj.mean(out_of_order, data=torch.ones(3, 1)), {})


@pytest.mark.parametrize("penalty", [oneproj.Hinge(1e5), oneproj.Softplus(1e5, 0.1)])
def test_a_penalty_that_overflows_in_float16_is_refused(
    penalty: Callable[[Tensor], Tensor],
) -> None:
    c = torch.tensor([0.1, -0.2], dtype=torch.float16, requires_grad=True)
    with pytest.raises(oneproj.InvalidProblemError, match=r"65504.*float32"):
        penalty(c)
    assert math.isfinite(float(penalty(c.detach().float())))


def test_a_run_that_overflows_in_float16_says_so() -> None:
    w = torch.ones(3, dtype=torch.float16, requires_grad=True)
    cap = oneproj.function(lambda: (w * 20).square().sum()) <= 1.0
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"cap": cap})
    with pytest.raises(oneproj.NonFiniteError, match=r"65504.*smaller strength"):
        oneproj.solve(problem, steps=4, strength=1e5)


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        (oneproj.theory.convex_schedule, "ConvexConstants"),
        (oneproj.theory.nonconvex_schedule, "NonconvexConstants"),
    ],
)
def test_constants_in_a_dict_are_told_of_their_class(
    schedule: Callable[..., Any], kind: str
) -> None:
    message = rf"got a dict. Make one.*oneproj.theory.{kind}\("
    with pytest.raises(oneproj.InvalidScheduleError, match=message):
        schedule({"weak_convexity": 1.0}, 0.5)
    with pytest.raises(oneproj.InvalidScheduleError, match="Make one"):
        schedule(1.0, 0.5)


def test_a_term_has_no_truth_value() -> None:
    w = torch.ones(2, requires_grad=True)
    size = oneproj.function(w.sum)
    for term in (size, 2.0 * size, oneproj.mean(lambda x: x @ w, torch.ones(3, 2))):
        with pytest.raises(oneproj.InvalidProblemError, match=r"term\.value\(\) <="):
            bool(term)
    with pytest.raises(oneproj.InvalidProblemError, match="two constraints"):
        0.0 <= size <= 1.0  # noqa: B015 - refused
    with pytest.raises(oneproj.InvalidProblemError, match=r"constraint\.value\(\) <="):
        bool(size <= 0.3)


@pytest.mark.parametrize("name", ["smooth", "projected"])
def test_certify_takes_flags_not_words(name: str) -> None:
    w = torch.ones(2, requires_grad=True)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {})
    with pytest.raises(oneproj.InvalidProblemError, match=f"{name}.*got 'no'"):
        oneproj.certify(problem, **{name: "no"})  # type: ignore[arg-type]


def test_an_optimiser_needs_a_step_size_only() -> None:
    trained = []
    adam = partial(torch.optim.Adam, betas=(0.9, 0.95))
    solves = {"prox_weight": 0.02, "inner_steps": 10, "late_weight": 3.0, "base": adam}
    for settings in ({}, solves):
        w = torch.ones(2, requires_grad=True)
        optimizer = oneproj.OneProjection([w], lr=0.1, **settings)
        for _ in range(20):
            optimizer.zero_grad()
            w.square().sum().backward()
            optimizer.step()
        optimizer.eval()
        trained.append(w.tolist())
    assert trained[0] == pytest.approx(trained[1], rel=1e-5)
    assert max(trained[0]) < 0.1


@pytest.mark.parametrize("bad", [2, 3, 4])
@pytest.mark.parametrize("radius", [math.inf, 9.0])
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
def test_a_nan_gradient_is_reported_at_its_own_step(
    base: type[torch.optim.Optimizer], radius: float, bad: int
) -> None:
    w = torch.ones(2, requires_grad=True)
    optimizer = oneproj.OneProjection(
        [w], 0.1, prox_weight=0.02, inner_steps=3, radius=radius, base=base
    )
    for k in range(1, bad + 1):
        optimizer.zero_grad()
        w.square().sum().backward()
        if k == bad and w.grad is not None:
            w.grad[0] = math.nan
            with pytest.raises(oneproj.NonFiniteError) as told:
                optimizer.step()
        else:
            optimizer.step()
    assert (told.value.step, told.value.quantity) == (bad, "the gradient")
    assert bool(w.isfinite().all())
