"""What is warned of at the start: rounding is not, the same in wider dtypes is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj import OneprojWarning

X = torch.tensor([1.0, -1.0, 2.0, 3.0, 0.0])
W = torch.ones((), requires_grad=True)


def with_company(share: float, dtype: torch.dtype) -> oneproj.Problem:
    """A constraint whose values change by this share of the largest in their batch."""

    def rows(b: Tensor) -> Tensor:
        return (W * (b + 2.0) + share * b.max()).to(dtype)

    term = oneproj.mean(rows, data=X)
    return oneproj.Problem(W, term, {"cap": term <= 1.0})


def test_values_that_cancel_are_rounded_as_large_as_they_are() -> None:
    term = oneproj.mean(lambda b: W * b + 1e-7 * b.max(), data=X)
    oneproj.Problem(W, term, {"balance": term <= 0.0})
    assert oneproj.project(W, {"balance": term <= 2.0}).status.ok


def test_values_in_few_bits_are_rounded_more() -> None:
    with_company(1e-2, torch.bfloat16)
    with pytest.warns(OneprojWarning, match="depends on the rest of its batch"):
        with_company(1e-2, torch.float32)
    with pytest.warns(OneprojWarning, match="depends on the rest of its batch"):
        with_company(1.0, torch.bfloat16)


def test_a_model_in_training_mode_is_told_of_once_for_all_terms() -> None:
    model, x = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5)), torch.ones(4, 3)
    term = oneproj.mean(lambda batch: model(batch)[:, 0], x)
    caps = {"one way": term <= 9.0, "the other way": term >= -9.0}
    with pytest.warns(OneprojWarning, match="Dropout in training mode") as caught:
        oneproj.Problem(model.parameters(), term, caps)
    assert len(caught) == 1
    with pytest.warns(OneprojWarning, match="Dropout in training mode") as caught:
        oneproj.project(model.parameters(), caps, on_failure="return")
    assert len(caught) == 1
