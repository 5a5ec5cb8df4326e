"""A run that ends on its way says so, and no other does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import oneproj
from oneproj import OneprojWarning


def far(away: float, size: int = 1) -> oneproj.Problem:
    """``min (w - away)^2`` from zero, with a cap that is never reached."""
    w = torch.zeros(size, requires_grad=True)
    square = oneproj.function(lambda: (w - away).square().mean())
    cap = oneproj.function(w.mean, curvature="linear") <= 2 * away
    return oneproj.Problem(w, square, {"cap": cap})


def says(problem: oneproj.Problem, **options: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        arguments: dict[str, Any] = {"steps": 100} | options
        oneproj.solve(problem, **arguments)
    return [one for one in raised if "on its way" in str(one.message)]


def test_too_short_steps_are_said_with_what_helps_where_solve_was_called() -> None:
    with pytest.warns(OneprojWarning, match="Standardise features and targets") as seen:
        oneproj.solve(far(100.0), steps=100)
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("away", "options"),
    [
        (1.0, {}),  # arrived
        (100.0, {"lr": 30.0}),  # arrived, with what the message says
        (100.0, {"base": "sgd", "lr": 0.1}),  # its steps have no such bound
        (100.0, {"callbacks": lambda update: update.update == 50}),  # stopped
    ],
)
def test_nothing_is_said_otherwise(away: float, options: dict[str, Any]) -> None:
    assert not says(far(away), **options)


def test_nothing_is_said_of_a_trial() -> None:
    assert not says(far(100.0), steps=99)


def test_nothing_is_said_of_many_parameters() -> None:
    assert says(far(100.0, size=1000))
    assert not says(far(100.0, size=1001))


def test_nothing_is_said_where_the_objective_is_nearly_gone() -> None:
    w = torch.zeros(1, requires_grad=True)
    distance = oneproj.function(lambda: (w - 3.2).abs().sum())
    cap = oneproj.function(w.sum, curvature="linear") <= 100.0
    assert not says(oneproj.Problem(w, distance, {"cap": cap}))
    assert w.item() > 3.1  # of the 4.9 that the steps allow


def test_a_resumed_run_says_it_too(tmp_path: Path) -> None:
    file = tmp_path / "run"
    stop = {"checkpoint": file, "callbacks": lambda update: update.update == 50}
    assert not says(far(100.0), **stop)
    assert says(far(100.0), resume=file)
