"""``oneproj.largest``: the mean of the largest values over data."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import oneproj

X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [-1.0, 1.0]]).double()


def weight() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("chunk_size", [1, 3, 100])
def test_value_and_gradient_are_those_of_torch(count: int, chunk_size: int) -> None:
    w = weight()
    term = oneproj.largest(
        lambda x: (x @ w).square(), data=X, count=count, chunk_size=chunk_size
    )
    expected = (X @ w).square().topk(count).values.mean()
    (slope,) = torch.autograd.grad(expected, w)
    value, (gradient,) = (term <= 1.0).value_and_gradient([w])
    assert value == pytest.approx(expected.item() - 1.0)
    assert term.value() == value + 1.0
    torch.testing.assert_close(gradient, slope)
    torch.testing.assert_close(term.batch_value(None), expected)


def test_a_minibatch_is_all_of_the_data() -> None:
    w = weight()
    term = oneproj.largest(lambda x: x @ w, data=X)
    assert term.size is None
    assert term.batch_value(torch.tensor([0])).item() == term.value() == 5.0


def test_the_largest_of_convex_or_linear_values_is_convex() -> None:
    w = weight()
    shapes = {
        given: oneproj.largest(lambda x: x @ w, data=X, curvature=given).curvature
        for given in ("convex", "linear", "concave", None)
    }
    assert shapes == {
        "convex": "convex",
        "linear": "convex",
        "concave": None,
        None: None,
    }


def test_it_is_an_expression() -> None:
    w = weight()
    worst = oneproj.largest(lambda x: x @ w, data=X)
    average = oneproj.mean(lambda x: x @ w, data=X)
    gap = worst - average
    assert gap.value() == pytest.approx(worst.value() - average.value())
    assert repr(worst) == "largest of 4 examples"


def test_a_loader_stands_for_its_examples() -> None:
    w = weight()
    loader = DataLoader(TensorDataset(X), batch_size=2, shuffle=True)
    term = oneproj.largest(lambda batch: batch[0] @ w, data=loader, count=2)
    value, _ = term.value_and_gradient([w])
    assert value == 4.5


def test_more_than_there_are_examples_is_refused() -> None:
    w = weight()
    with pytest.raises(oneproj.InvalidProblemError, match="data has 4"):
        oneproj.largest(lambda x: x @ w, data=X, count=5)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_count_is_a_whole_number(count: float) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="count"):
        oneproj.largest(lambda x: x.sum(1), data=X, count=count)  # type: ignore[arg-type]


def test_an_error_names_the_constraint() -> None:
    w = weight()
    worst = oneproj.largest(lambda x: (x @ w).sum(), data=X)
    with pytest.raises(oneproj.InvalidProblemError, match="'worst case'"):
        oneproj.project(w, {"worst case": worst <= 1.0})
