"""The worst residual, and nothing but it."""

from __future__ import annotations

import math

import pytest
import torch

import oneproj
from oneproj import Measure, NonFiniteError


def feasibility(problem: oneproj.Problem) -> Measure:
    return oneproj.certify(problem)["feasibility"]


def problem_with(bounds: dict[str, float], **ball: float) -> oneproj.Problem:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    terms = {n: oneproj.function(w.sum) <= b for n, b in bounds.items()}
    return oneproj.Problem(w, oneproj.function(w.sum), terms, **ball)


def test_the_worst_of_several_on_all_data() -> None:
    data = torch.arange(10_000, dtype=torch.float32)
    w = torch.tensor(1.0, requires_grad=True)
    average = oneproj.mean(lambda batch: w * batch, data=data)
    problem = oneproj.Problem(
        w,
        oneproj.function(w.square),
        {"low": average >= 4000.0, "high": average <= 4999.0},
    )
    measure = feasibility(problem)
    assert measure.value == 0.5
    assert measure.details["worst constraint"] == "high"
    assert measure.details["residuals"] == {"low": -999.5, "high": 0.5}
    assert measure.details["constraint passes"] == 4, "twice: in float64 as well"


@pytest.mark.parametrize(
    ("bound", "holds"), [(3.0, True), (3.5, True), (math.nextafter(3.0, 0), False)]
)
def test_zero_is_feasible_and_the_next_number_is_not(
    bound: float, *, holds: bool
) -> None:
    assert feasibility(problem_with({"c": bound})).holds is holds


def test_without_constraints_nothing_is_violated() -> None:
    measure = feasibility(problem_with({}))
    assert (measure.value, measure.holds) == (-math.inf, True)


def test_distance_outside_the_ball() -> None:
    problem = problem_with({"c": 3.0}, radius=1.0)
    outside = feasibility(problem).details["distance outside the safeguard ball"]
    assert outside == pytest.approx(math.sqrt(5.0) - 1.0)


def test_nan_is_named() -> None:
    w, shift = torch.ones(2, requires_grad=True), torch.zeros(())
    cap = oneproj.function(lambda: w.sum() + shift) <= 3.0
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"cap": cap})
    shift.fill_(math.nan)
    with pytest.raises(NonFiniteError, match="the value of 'cap'"):
        feasibility(problem)
