"""NaN and inf, in a value or in a gradient, are named after the term they came from.

In data they are refused when the term is made, and a run adds the update: those tests
are with the data sources and with ``solve``.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oneproj import Counts, Hinge, NonFiniteError, Problem, function, mean
from oneproj.oracles import ORACLES, AbstractOracle
from oneproj.problem import AbstractTerm

# --- terms on all data --------------------------------------------------------


def in_two_chunks(first: float, second: float) -> AbstractTerm:
    values = torch.tensor([first, second], dtype=torch.float64)
    return mean(lambda i: values[i], torch.arange(2), chunk_size=1)


NONFINITE = {
    "nan": in_two_chunks(1.0, math.nan),
    "inf": in_two_chunks(1.0, math.inf),
    "inf - inf": in_two_chunks(math.inf, -math.inf),
    "overflow": in_two_chunks(1.7e308, 1.7e308),
    "constraint": in_two_chunks(1.0, math.nan) <= 0.0,
    "function": function(lambda: torch.tensor(math.nan)),
    "at least": function(lambda: torch.tensor(math.inf)) >= 0.0,
}


@pytest.mark.parametrize("term", NONFINITE.values(), ids=NONFINITE)
def test_a_value_that_is_not_finite_names_the_term(term: AbstractTerm) -> None:
    term = term.named("source risk")
    w = torch.ones((), requires_grad=True)
    match = "the value of 'source risk' is NaN or infinite"
    with pytest.raises(NonFiniteError, match=match):
        term.value()
    with pytest.raises(NonFiniteError, match=match):
        term.value_and_gradient([w])


def test_a_gradient_that_is_not_finite_names_the_term() -> None:
    w = torch.zeros((), requires_grad=True)
    # The slope of the square root at 0 is infinite, its value is not.
    for term in (
        mean(lambda b: (w * b).sqrt(), torch.ones(2)),
        function(w.sqrt),
        function(w.sqrt) <= 1.0,
    ):
        assert math.isfinite(term.value())
        match = "the gradient of 'root' is NaN or infinite"
        with pytest.raises(NonFiniteError, match=match):
            term.named("root").value_and_gradient([w])


# --- oracles ------------------------------------------------------------------


def broken(objective: Tensor, cap: Tensor, w: Tensor) -> Problem:
    """A problem that starts well, so that it can be built, and then breaks."""
    return Problem(
        w,
        objective=function(lambda: torch.dot(objective, w)),
        constraints={
            "fine": function(lambda: (w.square()).sum()) <= -1.0,
            "cap": mean(lambda b: (cap * w).sum() * b, torch.ones(4)) <= -1.0,
        },
    )


def look(kind: type[AbstractOracle], problem: Problem) -> None:
    kind(
        problem,
        Hinge(1.0, "sum"),
        batch_size=2,
        generator=torch.Generator().manual_seed(0),
        counts=Counts(),
    ).backward()


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["objective", "cap"])
def test_an_oracle_names_the_term_whose_value_is_not_finite(
    kind: type[AbstractOracle], bad: float, name: str
) -> None:
    w = torch.ones(2, requires_grad=True)
    factors = {"objective": torch.ones(2), "cap": torch.ones(2)}
    problem = broken(factors["objective"], factors["cap"], w)
    factors[name][0] = bad
    with pytest.raises(NonFiniteError, match=f"the value of '{name}' is NaN"):
        look(kind, problem)


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
@pytest.mark.parametrize("name", ["objective", "fine", "cap"])
def test_an_oracle_names_the_term_whose_gradient_is_not_finite(
    kind: type[AbstractOracle], name: str
) -> None:
    w = torch.zeros(1, requires_grad=True)

    def smooth_or_not(mine: str) -> Tensor:
        # The slope of the square root at 0 is infinite, its value is not.
        return w.sqrt().sum() if mine == name else w.sum()

    problem = Problem(
        w,
        objective=function(lambda: smooth_or_not("objective")),
        constraints={
            "fine": function(lambda: smooth_or_not("fine")) <= -1.0,
            "cap": mean(lambda b: smooth_or_not("cap") * b, torch.ones(4)) <= -1.0,
        },
    )
    with pytest.raises(NonFiniteError, match=f"the gradient of '{name}' is NaN"):
        look(kind, problem)


def test_a_sum_that_overflows_names_what_was_added() -> None:
    w = torch.ones(1, requires_grad=True)
    problem = Problem(
        w,
        objective=function(lambda: 3e38 * (w - 1.0).sum()),
        constraints={
            "pushed": function(lambda: 3e38 * (w - 1.0).sum()) <= -1.0,
            "satisfied": function(w.sum) <= 5.0,
        },
    )
    match = "gradient of 'objective' plus the penalty on 'pushed' is NaN"
    with pytest.raises(NonFiniteError, match=match):
        look(ORACLES["minibatch"], problem)


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
def test_a_gradient_of_the_objective_is_checked_where_nothing_pushes(
    kind: type[AbstractOracle],
) -> None:
    w = torch.zeros(1, requires_grad=True)
    slack = mean(lambda b: w.sum() * b, torch.ones(4)) <= 1.0
    problem = Problem(w, function(lambda: w.sqrt().sum()), {"slack": slack})
    with pytest.raises(NonFiniteError, match="the gradient of 'objective' is NaN"):
        look(kind, problem)


@pytest.mark.parametrize("alone", [False, True])
def test_an_objective_that_is_not_alone_is_checked_with_the_penalty(
    *, alone: bool
) -> None:
    w = torch.zeros(1, requires_grad=True)
    problem = Problem(w, function(lambda: w.sqrt().sum()), {})
    oracle = ORACLES["minibatch"](
        problem,
        Hinge(1.0),
        batch_size=1,
        generator=torch.Generator(),
        counts=Counts(),
    )
    match = "the gradient of 'objective' is NaN"
    if alone:
        with pytest.raises(NonFiniteError, match=match):
            oracle.backward_objective()
        return
    oracle.backward_objective(alone=False)
    with pytest.raises(NonFiniteError, match=match):
        oracle.add_penalty()


def test_a_gradient_whose_square_overflows_is_finite() -> None:
    w = torch.ones(2, requires_grad=True)
    look(ORACLES["minibatch"], Problem(w, function(lambda: 3e38 * (w - 1.0).sum()), {}))
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([3e38, 3e38])
