"""Rows held out by class and group, and input that is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneproj import InvalidProblemError
from oneproj.learn import ConstrainedClassifier
from oneproj.learn.base import Rows, held_out_rows

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.arange(40) % 2


def test_every_stratum_gives_its_share() -> None:
    strata = torch.tensor([0] * 100 + [1] * 10 + [2] * 2 + [3])
    chosen = held_out_rows(strata, 0.3, torch.Generator().manual_seed(0))
    assert [int(chosen[strata == j].sum()) for j in range(4)] == [30, 3, 1, 0]


def test_strata_are_classes_within_groups() -> None:
    rows = Rows(torch.zeros(4, 1), torch.tensor([0.0, 1, 0, 1]))
    assert rows.strata().tolist() == [0, 1, 0, 1]
    grouped = Rows(rows.x, rows.y, torch.tensor([0, 0, 2, 2]))
    assert grouped.strata().tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number between"),
        ({"warm_start": "no"}, "warm_start must be True or False"),
        ({"confidence": 2}, "confidence must be a number between 0 and 1, got 2"),
        ({"model": "mlp"}, "model must be None"),
    ],
)
def test_parameters_are_checked_when_fitted(
    parameters: dict[str, object], message: str
) -> None:
    clf = ConstrainedClassifier(**parameters)
    with pytest.raises(InvalidProblemError, match=message):
        clf.fit(X, Y)


def test_three_classes_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"Only binary.*with 3 classes"):
        ConstrainedClassifier().fit(X, np.arange(40) % 3)
