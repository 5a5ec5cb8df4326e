"""L-BFGS on what is violated: where it leads, when it gives up."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.descent import descend
from oneproj.projection.nonconvex.valley import PATIENCE, follow_valley


def valley(bound: float) -> Evaluator:
    """Rosenbrock's, which is steep across and nearly flat along a curve."""
    w = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    bent = oneproj.function(
        lambda: 100 * (w[1] - w[0].square()).square() + (1 - w[0]).square()
    )
    return Evaluator([w], {"valley": bent <= bound}, differentiate_all=True)


def test_it_reaches_the_end_of_a_valley_where_gradients_alone_do_not() -> None:
    evaluator = valley(1e-6)
    assert follow_valley(evaluator, looks=100)
    assert evaluator.best.worst <= 0
    assert evaluator.best_point[0].tolist() == pytest.approx([1.0, 1.0], abs=1e-2)
    assert not descend(valley(1e-6), looks=200)


def test_an_empty_set_is_given_up_in_time() -> None:
    evaluator = valley(-1.0)
    assert not follow_valley(evaluator, looks=5000)
    assert evaluator.evaluations < 100 + PATIENCE
    assert evaluator.best.worst == pytest.approx(1.0, abs=0.01)


def test_the_best_point_is_the_one_that_was_seen() -> None:
    """The optimiser goes on in tensors that it shows, and the evaluator keeps them."""
    for looks in range(5, 60, 5):
        evaluator = valley(-1.0)
        follow_valley(evaluator, looks=looks)
        x, y = evaluator.best_point[0].tolist()
        seen = 100 * (y - x**2) ** 2 + (1 - x) ** 2
        assert evaluator.best.worst == pytest.approx(seen + 1.0, rel=1e-12)


def test_the_looks_are_limited() -> None:
    evaluator = valley(1e-6)
    assert not follow_valley(evaluator, looks=5)
    assert evaluator.evaluations == 1 + 5


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_the_unit_of_a_constraint_does_not_matter(factor: float) -> None:
    w = torch.tensor([3.0, 2.0], dtype=torch.float64, requires_grad=True)
    disc = oneproj.function(lambda: factor * (w.square().sum() - 1.0))
    right = oneproj.function(lambda: w[0])
    named = {"disc": disc <= 0.0, "right": right >= 0.5}
    evaluator = Evaluator([w], named, differentiate_all=True)
    assert follow_valley(evaluator, looks=30)


def test_it_ends_where_nothing_can_be_seen() -> None:
    w = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)

    def steep() -> torch.Tensor:
        if float(w.detach()) < 1.0:
            raise NonFiniteError(quantity="a value")
        return w.log().sum()

    evaluator = Evaluator(
        [w], {"log": oneproj.function(steep) <= 0.1}, differentiate_all=True
    )
    assert not follow_valley(evaluator, looks=100)
    assert evaluator.evaluations < 10


def test_no_slope_is_no_way() -> None:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    grown = {"grown": oneproj.function(lambda: w.square().sum()) >= 1.0}
    evaluator = Evaluator([w], grown, differentiate_all=True)
    assert not follow_valley(evaluator, looks=100)
    assert evaluator.evaluations == 1
