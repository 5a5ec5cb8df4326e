"""What every method owes where something fails: a projection, a start, a number."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Projection, Status, Update
from oneproj.methods import METHODS
from oneproj.projection import AbstractProjector

DETERMINISTIC = ("slsqp", "auto")  # "auto" takes SLSQP for problems as small as these


class GivesUp(AbstractProjector):
    """A projector that never gets there."""

    name = "gives-up"

    def accepts(self, constraints: object) -> None:
        del constraints

    def project(self, parameters: list[Tensor], constraints: object) -> Projection:
        del constraints
        self.start = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            parameters[0].add_(torch.tensor([0.0, -1e6]))
        return Projection(Status.INFEASIBLE, 1e6, {"far": 0.25}, {}, 7)


def beyond_the_ball() -> oneproj.Problem:
    """No point of the safeguard ball is feasible: only a projector leaves it."""
    w = torch.zeros(2, requires_grad=True)
    half = oneproj.sets.Halfspace(torch.tensor([-1.0, 0.0]), offset=-5.0)  # w_1 >= 5
    objective = oneproj.function(lambda: w.square().sum())
    return oneproj.Problem(w, objective, {"far": half.on(w)}, radius=1.0)


@pytest.mark.filterwarnings("ignore:SLSQP stopped early")
@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize("method", METHODS)
def test_a_failed_projection_raises_or_is_returned(method: str) -> None:
    gives_up = GivesUp()
    arguments = {"method": method, "projector": gives_up, "steps": 50}
    problem = beyond_the_ball()
    with pytest.raises(oneproj.InfeasibleError, match=r"'far'.*best residual"):
        oneproj.solve(problem, **arguments)
    assert torch.equal(problem.parameters[0].detach(), gives_up.start[0])
    problem = beyond_the_ball()
    solution = oneproj.solve(problem, **arguments, on_failure="return")
    assert solution.status is Status.INFEASIBLE
    assert not solution.status.ok
    # The parameters hold the trained point, and the solution is about it.
    assert torch.equal(problem.parameters[0].detach(), gives_up.start[0])
    assert problem.parameters[0].detach().norm() <= 1.0
    assert solution.residuals == problem.residuals()
    assert solution.objective == problem.objective.value()


@pytest.mark.filterwarnings("ignore:SLSQP stopped early")
@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize("method", METHODS)
def test_an_answer_outside_the_ball_is_said_and_not_certified(method: str) -> None:
    with pytest.warns(oneproj.OneprojWarning, match="outside the safeguard") as said:
        solution = oneproj.solve(beyond_the_ball(), method=method, steps=50)
    assert {warning.filename for warning in said} == {__file__}
    assert solution.feasible
    assert not solution.certificate.holds
    assert solution.certificate["safeguard ball"].value == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_start_outside_the_ball_is_said_where_solve_was_called(method: str) -> None:
    w = torch.tensor([3.0, 0.0], requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: (w - 0.5).square().sum()),
        {"size": oneproj.sets.Ball(1.0).on(w)},
        radius=2.0,
    )
    with pytest.warns(oneproj.OneprojWarning, match="start lies 1 outside") as said:
        assert oneproj.solve(problem, method=method, steps=50).feasible
    assert [warning.filename for warning in said] == [__file__]


@pytest.mark.parametrize("where", ["value", "gradient"])
@pytest.mark.parametrize("term", ["objective", "cap"])
@pytest.mark.parametrize("method", METHODS)
def test_non_finite_numbers_name_the_update_and_the_term(
    method: str, term: str, where: str
) -> None:
    # Where the constraint holds, methods look at the objective; beyond it, at both.
    start = [0.1, 0.2] if term == "objective" else [0.9, 1.0]
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    armed = []

    def poisoned(name: str, value: Tensor) -> Tensor:
        if name != term or not armed:
            return value
        return value * math.nan if where == "value" else value + (w * 0).sqrt().sum()

    def arm(update: Update) -> None:
        if update.update == 2:
            armed.append(True)

    objective = oneproj.function(lambda: poisoned("objective", (w - 3.0).pow(4).sum()))
    cap = oneproj.function(lambda: poisoned("cap", w.square().sum())) <= 0.2
    problem = oneproj.Problem(w, objective, {"cap": cap}, radius=9.0)
    options = {} if method in DETERMINISTIC else {"lr": 1e-4}
    message = f"the {where} of.*'{term}' is NaN or infinite at update 3"
    with pytest.raises(oneproj.NonFiniteError, match=message):
        oneproj.solve(problem, method=method, steps=50, callbacks=arm, **options)
