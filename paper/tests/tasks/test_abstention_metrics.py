"""Metrics of abstention, counted by hand."""

from __future__ import annotations

import math

import pytest
import torch

from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.abstention_metrics import abstention_metrics
from oneproj_paper.tasks.models import Scores


def identity_scores() -> Scores:
    """Scores that return the two columns of x."""
    scores = Scores(2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for j, score in enumerate(scores.pair):
            weight, bias = score.parameters()
            weight.copy_(torch.eye(2)[j : j + 1])
            bias.zero_()
    return scores


def test_shares_are_those_counted_by_hand() -> None:
    x = torch.tensor(
        [
            [1.0, -1.0],  # class 0: right
            [0.0, 0.0],  # class 0: both accept, zero included
            [-1.0, 1.0],  # class 0: wrong
            [-1.0, -1.0],  # class 0: both refuse
            [-1.0, 2.0],  # class 1: right
            [3.0, -2.0],  # class 1: wrong
        ]
    )
    sample = Sample(x, torch.tensor([0, 0, 0, 0, 1, 1]))
    metrics = abstention_metrics(identity_scores(), sample)
    assert metrics.class_0_error == pytest.approx(2 / 4)
    assert metrics.class_1_error == pytest.approx(1 / 2)
    assert metrics.ambiguity == pytest.approx(1 / 6)
    assert metrics.decided_accuracy == pytest.approx(2 / 4)


def test_nothing_decided_has_no_accuracy() -> None:
    sample = Sample(torch.ones(3, 2), torch.tensor([0, 1, 1]))
    metrics = abstention_metrics(identity_scores(), sample)
    assert metrics.ambiguity == 1.0
    assert math.isnan(metrics.decided_accuracy)


@pytest.mark.parametrize(
    ("errors", "ones", "ambiguity", "accuracy"),
    [
        ((12.84, 13.89), 0.5, 11.10, 84.95),
        ((9.68, 9.55), 2_229 / 49_302, 9.17, 89.35),
        ((16.75, 21.20), 2_628 / 23_864, 14.95, 79.77),
    ],
    ids=["gaussian", "nasa", "credit"],
)
def test_the_papers_means_fit_this_definition(
    errors: tuple[float, float], ones: float, ambiguity: float, accuracy: float
) -> None:
    # With hardly any example refused by both scores, right = 1 - error - ambiguity.
    error = (1 - ones) * errors[0] + ones * errors[1]
    assert 100 * (100 - error - ambiguity) / (100 - ambiguity) == pytest.approx(
        accuracy, abs=0.05
    )
