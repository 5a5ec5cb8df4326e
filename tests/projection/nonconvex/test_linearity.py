"""Functions beside sets: taken for linear where they are, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.linearity import seems_linear_within_sets


def weights() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(40, generator=generator, dtype=torch.float64).mul_(0.02)
    return w.add_(1 / 40).requires_grad_()


def stated(w: Tensor, term: AbstractTerm) -> dict[str, AbstractTerm]:
    return {"simplex": oneproj.sets.Simplex(1.0).on(w), "term": term}


@pytest.mark.parametrize(
    ("make", "linear"),
    [
        (lambda w: w[5:15].sum(), True),
        (lambda w: w[5:15].sum() + 1e-3 * w[0].square(), False),
        (lambda w: w.norm(), False),
        (lambda w: -w.abs().max(), False),
        (lambda w: w.log().sum(), False),  # which is not a number there
    ],
)
def test_values_tell_what_is_not_linear(
    make: Callable[[Tensor], Tensor], *, linear: bool
) -> None:
    w = weights()
    with torch.no_grad():
        w.clamp_(min=1e-3)
    before, term = w.detach().clone(), oneproj.function(lambda: make(w)) <= 0.0
    evaluator = Evaluator([w], stated(w, term), differentiate_all=True)
    assert seems_linear_within_sets(evaluator) == linear
    assert torch.equal(w.detach(), before)
    assert evaluator.evaluations == 2  # the first look, and two values


def test_sets_that_are_not_convex_do_not_count() -> None:
    w = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    total = oneproj.function(w.sum) <= 1.0
    rank = {"rank": oneproj.sets.Rank(1).on(w), "total": total}
    assert not seems_linear_within_sets(Evaluator([w], rank, differentiate_all=True))
    alone = Evaluator([w], {"total": total}, differentiate_all=True)
    assert not seems_linear_within_sets(alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_beside_a_simplex_takes_one_evaluation_more_than_declared(
    dtype: torch.dtype,
) -> None:
    w = weights().detach().to(dtype).requires_grad_()
    v = w.detach().clone().requires_grad_()
    some = oneproj.function(lambda: w.sum() - w[5:15].sum()) >= 0.8
    same = oneproj.function(lambda: v.sum() - v[5:15].sum(), curvature="linear") >= 0.8
    found = oneproj.project(w, stated(w, some))
    declared = oneproj.project(v, stated(v, same))
    assert found.gradients == declared.gradients + 1 < 6
    assert torch.equal(w.detach(), v.detach())
    assert found.lower_bound is None  # nothing was declared, so nothing is proven


def test_what_excludes_the_set_is_not_called_empty() -> None:
    w = weights()
    much = oneproj.function(lambda: w.sum() - w[5:15].sum()) >= 3.0
    found = oneproj.project(w, stated(w, much), on_failure="return")
    assert found.status is oneproj.Status.INFEASIBLE
