"""Terms without data, and what their functions must return."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oneproj import InvalidProblemError, function


@pytest.mark.parametrize(
    ("fn", "got"), [(lambda: torch.ones(2), r"\(2,\)"), (lambda: 1.0, "float")]
)
def test_a_function_wants_a_scalar(fn: Any, got: str) -> None:  # noqa: ANN401
    match = rf"function of 'size' must return a scalar tensor, but returned .*{got}"
    with pytest.raises(InvalidProblemError, match=match):
        function(fn).named("size").value()


def test_one_entry_counts_as_a_scalar() -> None:
    w = torch.tensor([[2.0]], requires_grad=True)
    term = function(lambda: 3 * w)
    assert term.value() == 6.0
    assert term.batch_value(None).shape == ()
    assert term.value_and_gradient([w])[1][0].tolist() == [[3.0]]


@pytest.mark.parametrize("fn", [None, 3.0, torch.ones(())])
def test_a_function_is_called_not_evaluated(fn: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidProblemError, match="made of a function"):
        function(fn)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool])
def test_a_function_returns_a_real_number(dtype: torch.dtype) -> None:
    with pytest.raises(InvalidProblemError, match=f"returned values of dtype {dtype}"):
        function(lambda: torch.ones((), dtype=dtype)).value()
