"""How the user's functions are called: with a graph if need be, named in errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.functions import Call


def slopes(net: torch.nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return gradient[:, 0]


def build(generator: torch.Generator) -> tuple[torch.nn.Module, Tensor, Tensor]:
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ).double()
    for p in net.parameters():
        torch.nn.init.normal_(p, generator=generator, std=0.5)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    return net, x, -x[:, 0] + x[:, 1]


def test_functions_that_differentiate_are_solved_projected_and_certified() -> None:
    """A bound on slopes, as a mean and as a function: autograd inside of a term."""
    net, x, y = build(torch.Generator().manual_seed(0))

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (net(batch[0]).squeeze(-1) - batch[1]).square()

    falls = oneproj.mean(lambda batch: torch.relu(-slopes(net, batch)), x)
    steepest = oneproj.function(lambda: slopes(net, x).abs().max())
    problem = oneproj.Problem(
        net.parameters(),
        objective=oneproj.mean(losses, (x, y)),
        constraints={"falls": falls <= 0.05, "steepest": steepest <= 0.8},
    )
    solution = oneproj.solve(problem, steps=60)
    assert solution.feasible
    assert max(problem.residuals().values()) <= 0
    assert oneproj.certify(problem).multipliers.keys() == {"falls", "steepest"}
    found = slopes(net, x).detach()
    assert -float(found.clamp(max=0).mean()) <= 0.05
    assert float(found.abs().max()) <= 0.8


def test_a_value_without_gradients_holds_no_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    calls = []

    def inside() -> Tensor:
        calls.append(torch.is_grad_enabled())
        return torch.autograd.grad(x.square().sum(), x, create_graph=True)[0].sum()

    term = oneproj.function(inside)
    assert (term.value(), term.value()) == (4.0, 4.0)
    assert calls == [False, True, True], "once it is known, there is no second try"
    with torch.no_grad():
        assert not term.batch_value(None).requires_grad


def test_errors_name_the_term_and_the_batch() -> None:
    w = torch.ones(3, requires_grad=True)
    x = torch.ones(5, 3, dtype=torch.float64)
    risk = oneproj.mean(lambda batch: batch["x"] @ w, {"x": x}).named("risk")
    for evaluate in (risk.value, lambda: risk.batch_value(torch.arange(2))):
        with pytest.raises(RuntimeError, match="Double") as caught:
            evaluate()
        (note,) = caught.value.__notes__
        assert note.startswith("In the function of 'risk', called with one argument, ")
        assert "the batch {'x': float64 [" in note
    with pytest.raises(ZeroDivisionError) as nothing:
        oneproj.function(lambda: w / (1 // 0)).named("size").value()
    assert nothing.value.__notes__ == [
        "In the function of 'size', called with no arguments."
    ]


TAKE_MORE = (lambda x, y: x + y, torch.nn.MSELoss(reduction="none"))


@pytest.mark.parametrize("fn", TAKE_MORE)
def test_who_takes_the_columns_one_by_one_is_told_of_the_batch(
    fn: Callable[..., Tensor],
) -> None:
    term = oneproj.mean(fn, data=(torch.zeros(3), torch.zeros(3))).named("risk")
    with pytest.raises(TypeError, match="positional argument") as caught:
        term.value()
    (note,) = caught.value.__notes__
    assert "with one argument, the batch (float32 [3], float32 [3])." in note
    assert note.endswith("def losses(batch): x, y = batch.")


def test_two_precisions_are_explained() -> None:
    w = torch.ones(2, requires_grad=True)
    rows = torch.ones(3, 2, dtype=torch.float64)
    term = oneproj.mean(lambda x: x @ w, data=rows)
    with pytest.raises(RuntimeError) as caught:
        term.value()
    assert "models float32: convert the data" in caught.value.__notes__[0]


def test_a_failure_that_a_graph_does_not_mend_is_raised() -> None:
    def fails(_: Tensor) -> Tensor:
        message = "out of order"
        raise RuntimeError(message)

    with torch.no_grad(), pytest.raises(RuntimeError, match="out of order"):
        Call(fails)("risk", torch.ones(1))
