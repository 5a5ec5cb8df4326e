"""Constraints made from terms by comparison."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from oneproj import InvalidProblemError, function, mean


def test_at_most_and_at_least_are_residuals_of_opposite_sign() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(23, 3, generator=generator, dtype=torch.float64)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    term = mean(lambda batch: (batch @ w).square(), x)
    at_most, at_least = term <= 0.5, term >= 0.5
    value, gradient = term.value_and_gradient([w])
    indices = torch.tensor([1, 2])
    for sense, c in ((1, at_most), (-1, at_least)):
        residual, slope = c.value_and_gradient([w])
        assert c.value() == residual == sense * (value - 0.5)
        assert torch.equal(slope[0], sense * gradient[0])
        batch = sense * (term.batch_value(indices) - 0.5)
        assert torch.equal(c.batch_value(indices), batch)
        assert c.size == 23


def test_a_number_on_the_left_means_the_same() -> None:
    w = torch.tensor(3.0, requires_grad=True)
    size = function(w.abs)
    assert (2.0 >= size).value() == (size <= 2.0).value() == 1.0
    assert (2.0 <= size).value() == (size >= 2.0).value() == -1.0


def test_a_constraint_draws_as_its_term_does() -> None:
    term = mean(lambda b: b, torch.arange(50.0))
    first, second = (
        t.draw(9, torch.Generator().manual_seed(2)) for t in (term, term <= 1.0)
    )
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_a_chained_comparison_is_refused() -> None:
    w = torch.tensor(3.0, requires_grad=True)
    size = function(w.abs)
    with pytest.raises(InvalidProblemError, match="lower <= term <= upper write two"):
        0 <= size <= 1  # noqa: B015 - the comparison is what is tested
    with pytest.raises(InvalidProblemError, match="no truth value"):
        bool(size <= 1.0)


@pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf])
def test_a_bound_is_a_finite_number(bound: float) -> None:
    term = function(lambda: torch.ones(()))
    with pytest.raises(InvalidProblemError, match=f"another term, got {bound}"):
        _ = term <= bound


def test_naming_makes_a_copy_that_shares_the_work() -> None:
    term = function(lambda: torch.zeros(2)) <= 1.0
    renamed = term.named("cap")
    assert (renamed.name, term.name) == ("cap", "term")
    with pytest.raises(InvalidProblemError, match="function of 'cap'"):
        renamed.value()
    with pytest.raises(InvalidProblemError, match="function of 'term'"):
        term.value()


def test_a_bound_may_be_any_number() -> None:
    w = torch.tensor(3.0, requires_grad=True)
    size = function(w.abs)
    for bound in (2, 2.0, torch.tensor(2.0), np.float32(2.0)):
        assert (size <= bound).value() == 1.0


def test_a_strict_comparison_is_refused() -> None:
    term = function(lambda: torch.ones(()))
    for compare in (lambda: term < 1.0, lambda: term > 1.0, lambda: 1.0 < term):
        with pytest.raises(
            InvalidProblemError, match=r"strict comparison with 1\.0.*<="
        ):
            compare()


def test_a_maximum_of_terms_is_said_to_be_two_constraints() -> None:
    a, b = (function(lambda: torch.ones(())) for _ in range(2))
    with pytest.raises(InvalidProblemError, match=r"max\(a, b\).*two constraints"):
        max(a, b)


def test_a_number_that_may_move_or_that_no_float_holds_is_refused() -> None:
    w = torch.tensor(3.0, requires_grad=True)
    size, slack = function(w.abs), torch.tensor(2.0, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=r"one that moves is a term"):
        _ = size <= slack
    with pytest.raises(InvalidProblemError, match="finite number, but got"):
        _ = size * slack
    for bound in (10**400, -(10**400)):
        with pytest.raises(InvalidProblemError, match="must be a finite number"):
            _ = size <= bound
    assert (size <= function(lambda: slack)).value() == 1.0
