"""The iterate that a method returns."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.methods.baseline import Answer


def shown(rule: str, weights: list[float], generator: torch.Generator) -> float:
    """Offer 1, 2, 3, ... with these weights; what is shown in the end?"""
    w = torch.zeros(1, dtype=torch.float64)
    answer = Answer([w], rule, generator)
    for k, weight in enumerate(weights, start=1):
        w.fill_(k)
        answer.offer(weight)
    w.fill_(99.0)
    answer.show()
    return w.item()


def test_last_is_the_last_and_average_is_weighted() -> None:
    generator = torch.Generator()
    assert shown("last", [1.0, 1.0, 0.0], generator) == 3.0
    expected = (0.5 * 1 + 0.2 * 2 + 0.3 * 3) / (0.5 + 0.2 + 0.3)
    assert shown("average", [0.5, 0.2, 0.3], generator) == pytest.approx(expected)


def test_random_draws_each_in_proportion_to_its_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [shown("random", [1.0, 2.0, 3.0], generator) for _ in range(3000)]
    for k, probability in ((1, 1 / 6), (2, 2 / 6), (3, 3 / 6)):
        # Four standard deviations of a frequency are at most 4 / (2 sqrt(3000)).
        assert draws.count(k) / 3000 == pytest.approx(probability, abs=0.037)


def test_weights_of_zero_leave_what_is_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    assert shown("average", [0.0, 0.0], generator) == 1.0
    assert shown("random", [1.0, 0.0, 0.0], generator) == 1.0


def test_nothing_offered_leaves_the_parameters() -> None:
    assert shown("average", [], torch.Generator()) == 99.0


def test_a_rule_that_does_not_exist_is_refused() -> None:
    message = "select must be one of 'last', 'average', 'random', got 'best'"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        Answer([torch.zeros(1)], "best", torch.Generator())
