"""Rounding that depends on the batch is no alarm; the same in wider dtypes is one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import OneprojWarning

X = torch.tensor([1.0, -1.0, 2.0, 3.0, 0.0])
W = torch.ones((), requires_grad=True)


def with_company(share: float, dtype: torch.dtype) -> oneproj.Problem:
    """A constraint whose values change by this share of the largest in their batch."""

    def rows(b: Tensor) -> Tensor:
        return (W.to(dtype) * (b + 2.0)).float() + share * b.max()

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
