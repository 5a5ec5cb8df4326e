"""Back from beyond a plateau: by values, where gradients say nothing."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.problem import named_constraints
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.bracket import close_in, is_unaware
from oneproj.projection.nonconvex.chart import Chart
from oneproj.projection.nonconvex.model import Place
from oneproj.results import Projection, Status


def at(length: float, step: float = 20.0) -> tuple[Evaluator, Chart, Place]:
    """A place on the line along which a constraint falls like a stair, at its edge."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    stair = oneproj.function(lambda: torch.sigmoid(step - w.sum()) - 0.1)
    evaluator = Evaluator(
        [w], named_constraints({"stair": stair <= 0.0}), differentiate_all=True
    )
    chart = Chart(evaluator, memory=9, capacity=40, carried=None)
    place = chart.visit(np.eye(1, 40)[0] * -length)
    assert place is not None
    return evaluator, chart, place


EDGE = 20.0 + math.log(9.0)


@pytest.mark.parametrize("length", [30.0, 1e3, 1e8, 1e16, 1e100])
def test_the_edge_is_found_from_however_far(length: float) -> None:
    evaluator, chart, place = at(length)
    assert is_unaware(place)
    back = close_in(chart, place)
    assert evaluator.best is back.look
    assert EDGE <= evaluator.best_distance <= 1.35 * EDGE
    assert evaluator.evaluations <= 25


def test_a_place_whose_slope_tells_of_the_violation_stays() -> None:
    evaluator, chart, place = at(EDGE + 0.1)
    assert not is_unaware(place)
    assert close_in(chart, place) is place
    assert evaluator.evaluations == 2


def saturated(dtype: torch.dtype, bias: float, seed: int) -> tuple[Tensor, Projection]:
    """Cap a rate whose scores are all far on the wrong side: its slope is nothing."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(100, 3, generator=generator, dtype=dtype)
    w = torch.tensor([0.0, 0.0, 0.0, -bias], dtype=dtype, requires_grad=True)
    rate = oneproj.mean(lambda x: torch.sigmoid(-4.0 * (x @ w[:3] + w[3])), data=X)
    return w, oneproj.project(w, {"rate": rate <= 0.01}, on_failure="return")


@pytest.mark.parametrize(
    ("dtype", "bias", "seed"),
    [
        (torch.float64, 10.0, 6),
        (torch.float32, 5.0, 9),
        (torch.float32, 10.0, 8),
        (torch.float32, 10.0, 16),
    ],
)
def test_an_answer_behind_a_plateau_is_brought_back(
    dtype: torch.dtype, bias: float, seed: int
) -> None:
    # They ended 4 to 80 times as far away, feasible and flat all around.
    _, done = saturated(dtype, bias, seed)
    assert done.status is Status.FEASIBLE
    assert done.distance <= 1.5 * (bias + 1.147)


@pytest.mark.parametrize(
    ("dtype", "bias"),
    [
        (torch.float64, 5.0),  # a slope of 1e-8, then of 1e-14, then none
        (torch.float64, 8.0),
        (torch.float64, 10.0),
        (torch.float32, 5.0),
        (torch.float32, 10.0),
    ],
)
def test_from_a_plateau_the_answer_is_near(dtype: torch.dtype, bias: float) -> None:
    # All scores up by bias + 1.15 is enough, and about the least. By rounding, about
    # one answer in a hundred is up to a fifth farther away; none is many times as far.
    answers = [saturated(dtype, bias, seed) for seed in range(5)]
    for _, done in answers:
        assert done.status is Status.FEASIBLE
        assert done.distance <= 1.5 * (bias + 1.147)
    distances = [done.distance for _, done in answers]
    assert median(distances) == pytest.approx(bias + 1.147, rel=5e-3)
    assert median(w[3].item() for w, _ in answers) == pytest.approx(1.147, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_way_back_from_a_plateau_takes_few_gradients(dtype: torch.dtype) -> None:
    # From one start it depends on the last bit of a sigmoid how many.
    cases = [(bias, seed) for bias in (5.0, 8.0, 10.0) for seed in range(1, 6)]
    looks = [saturated(dtype, *case)[1].gradients for case in cases]
    assert median(looks) <= 60
