"""Where no gradient can be taken nothing is said of one; sparse ones are made dense."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj import InvalidProblemError, Update
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES

INSIDE = r"inside torch.inference_mode\(\).*torch.no_grad\(\) does no harm"


def tilted() -> tuple[Tensor, oneproj.Problem]:
    """At the start the gradient is (-2, -2) and no constraint is active."""
    w = torch.zeros(2, requires_grad=True)
    objective = oneproj.function(lambda: (w - 1).square().sum())
    cap = oneproj.function(w.sum) <= 1.0
    return w, oneproj.Problem(w, objective, {"sum": cap})


def in_a_loop(w: Tensor) -> None:
    optimizer = oneproj.OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2)
    w.grad = torch.ones(2)
    with torch.inference_mode():
        optimizer.step()


CALLS: dict[str, Callable[[Tensor, oneproj.Problem], object]] = {
    "solve": lambda _, problem: oneproj.solve(problem, steps=4),
    "certify": lambda _, problem: oneproj.certify(problem),
    "project": lambda w, problem: oneproj.project(w, problem.constraints),
    "Problem": lambda w, problem: oneproj.Problem(w, problem.objective, {}),  # type: ignore[arg-type]
    "gradient": lambda w, problem: problem.objective.value_and_gradient([w]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_inference_mode_is_refused(
    call: Callable[[Tensor, oneproj.Problem], object],
) -> None:
    w, problem = tilted()
    with torch.inference_mode(), pytest.raises(InvalidProblemError, match=INSIDE):
        call(w, problem)
    assert w.tolist() == [0.0, 0.0]


def test_no_grad_does_no_harm() -> None:
    _, problem = tilted()
    with torch.no_grad():
        certificate = oneproj.certify(problem)
    assert certificate["KKT residual"].value == pytest.approx(8**0.5)


def test_a_step_in_inference_mode_is_refused() -> None:
    w, _ = tilted()
    with pytest.raises(InvalidProblemError, match=INSIDE):
        in_a_loop(w)
    assert w.tolist() == [0.0, 0.0]


def test_what_was_made_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        w, x = nn.Parameter(torch.zeros(2)), torch.ones(3, 2)
    term = oneproj.function(lambda: w.square().sum())
    with pytest.raises(
        InvalidProblemError, match=r"parameter of shape \(2,\) was made"
    ):
        oneproj.Problem(w, term, {})
    with pytest.raises(
        InvalidProblemError, match=r"parameter of shape \(2,\) was made"
    ):
        oneproj.OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2)
    with pytest.raises(InvalidProblemError, match=r"data tensor of shape \(3, 2\) was"):
        oneproj.mean(lambda batch: batch[:, 0], data=x)


@pytest.mark.parametrize("call", [oneproj.certify, oneproj.solve])
def test_a_parameter_that_was_frozen_later_is_named(
    call: Callable[[oneproj.Problem], object],
) -> None:
    w, problem = tilted()
    w.requires_grad_(requires_grad=False)
    with pytest.raises(
        InvalidProblemError, match=r"\(2,\) was frozen after the problem"
    ):
        call(problem)


@pytest.mark.parametrize("call", [oneproj.certify, oneproj.solve])
def test_what_is_no_problem_is_refused(call: Callable[[object], object]) -> None:
    with pytest.raises(InvalidProblemError, match="needed, but got a Linear"):
        call(nn.Linear(2, 1))


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_sparse_embedding_is_trained_as_a_dense_one(oracle: str) -> None:
    fill = torch.Generator().manual_seed(0)
    start, ids = torch.randn(30, 2, generator=fill), torch.arange(300) % 30
    ends = []
    for sparse in (False, True):
        table = nn.Embedding(30, 2, sparse=sparse, _weight=start.clone())
        risk = oneproj.mean(lambda b, t=table: t(b).square().sum(1), data=ids)
        first = oneproj.mean(lambda b, t=table: t(b).sum(1), data=ids[:10])
        problem = oneproj.Problem(table.parameters(), risk, {"first": first >= 1.0})
        solution = oneproj.solve(problem, steps=20, batch_size=8, oracle=oracle)
        assert solution.feasible
        ends.append(table.weight.detach())
    torch.testing.assert_close(*ends)


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("end", ["whole", "stopped", "raised"])
def test_solve_leaves_the_gradients_that_it_found(method: str, end: str) -> None:
    def last(update: Update) -> bool:
        if end == "raised" and update.update >= 2:
            raise ZeroDivisionError
        return end == "stopped" and update.update >= 2

    for before in (torch.full((2,), 7.0), None):
        w, problem = tilted()
        w.grad = before
        with nullcontext() if end != "raised" else pytest.raises(ZeroDivisionError):
            oneproj.solve(problem, method=method, steps=10, callbacks=last)
        assert w.grad is before
        assert before is None or before.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("method", METHODS)
def test_no_gradient_is_left_in_tensors_that_are_not_optimised(method: str) -> None:
    w, other = (torch.full((2,), 0.4, requires_grad=True) for _ in range(2))
    risk = oneproj.function(lambda: (w * other - 3.0).square().sum())
    problem = oneproj.Problem(w, risk, {"sum": oneproj.function(w.sum) <= 1.0})
    oneproj.solve(problem, method=method, steps=10)
    assert w.grad is None
    assert other.grad is None


def test_a_parameter_of_another_class_takes_its_own_way_back() -> None:
    asked = []

    class Marked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN206
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    w = torch.ones(2).as_subclass(Marked).requires_grad_()
    problem = oneproj.Problem(w, oneproj.function(lambda: w.square().sum()), {})
    asked.clear()
    oneproj.solve(problem, steps=10)
    assert torch.autograd.backward in asked
    assert w.norm() < 1.0
