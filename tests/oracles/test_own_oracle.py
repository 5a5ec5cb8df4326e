"""An oracle of one's own: a class that ``solve`` takes, without any registry."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.oracles import ORACLES, AbstractOracle
from oneproj.problem import AbstractTerm

ROWS = 12


class FirstHalf(AbstractOracle):
    """Every constraint on the first half of its data; without data, by its value."""

    name = "first-half"

    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        if constraint.size is None:
            return constraint.value(), None
        return self.evaluate_batch(constraint, torch.arange(constraint.size // 2))


class Drifting(ORACLES["anchored"]):
    """The anchored oracle under another name."""

    name = "drifting"


class Case:
    """An objective, a cap on a mean of data and one on a function, both violated."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64)
        self.w = torch.tensor([1.5, -1.0], dtype=torch.float64, requires_grad=True)
        self.problem = oneproj.Problem(
            self.w,
            objective=oneproj.function(lambda: (self.w - 2.0).square().sum()),
            constraints={
                "risk": oneproj.mean(self.losses, data=self.x) <= 0.5,
                "size": oneproj.function(lambda: self.w.square().sum()) <= 1.0,
            },
        )

    def losses(self, x: Tensor) -> Tensor:
        return (x @ self.w).square()


def test_its_estimates_and_their_gradient_are_what_an_update_uses() -> None:
    case, counts = Case(), oneproj.Counts()
    oracle = FirstHalf(
        case.problem,
        oneproj.Hinge(3.0, "sum"),
        batch_size=2,
        generator=torch.Generator(),
        counts=counts,
    )
    risk = case.losses(case.x[: ROWS // 2]).mean() - 0.5
    size = case.w.square().sum() - 1.0
    f = (case.w - 2.0).square().sum()
    (expected,) = torch.autograd.grad(f + 3.0 * (risk + size), case.w)
    estimate = oracle.backward()
    assert estimate.objective == pytest.approx(f.item())
    assert estimate.residuals == pytest.approx(
        {"risk": risk.item(), "size": size.item()}
    )
    torch.testing.assert_close(case.w.grad, expected)
    assert counts == oneproj.Counts(objective_gradients=1, constraint_gradients=2)


@pytest.mark.parametrize("method", ["one-projection", "penalty-sgd", "projected-sgd"])
def test_solve_takes_the_class(method: str) -> None:
    solution = oneproj.solve(
        Case().problem, method=method, oracle=FirstHalf, batch_size=2, steps=20
    )
    assert solution.feasible
    assert solution.settings["oracle"] == "first-half"


def test_a_class_is_the_same_as_its_name() -> None:
    answers = []
    for oracle in ("minibatch", ORACLES["minibatch"]):
        case = Case()
        oneproj.solve(case.problem, oracle=oracle, batch_size=2, steps=20)
        answers.append(case.w.detach().clone())
    assert torch.equal(*answers)


def test_one_that_uses_anchors_has_them_taken_at_the_centres() -> None:
    answers = []
    for oracle in ("anchored", Drifting):
        case, options = Case(), {"strength": 5.0, "batch_size": 2, "steps": 40}
        solution = oneproj.solve(case.problem, oracle=oracle, anchor_size=4, **options)
        answers.append((case.w.tolist(), solution.counts))
    assert answers[0] == answers[1]


def test_a_size_of_anchors_is_refused_where_none_are_used() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="anchor_size=4 has no"):
        oneproj.solve(
            Case().problem, method="penalty-sgd", oracle=FirstHalf, anchor_size=4
        )


def test_a_run_can_be_saved_but_not_resumed_with_another_oracle(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    again = {"steps": 20, "checkpoint": oneproj.Checkpoint(path, resume=True)}
    oneproj.solve(Case().problem, oracle=FirstHalf, steps=20, checkpoint=path)
    assert oneproj.solve(Case().problem, oracle=FirstHalf, **again).feasible
    with pytest.raises(oneproj.CheckpointError, match="oracle"):
        oneproj.solve(Case().problem, oracle=Drifting, **again)


@pytest.mark.parametrize("wrong", [FirstHalf.__name__, torch.optim.SGD, 3, None])
def test_what_is_no_oracle_is_refused(wrong: object) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="There is no oracle"):
        oneproj.solve(Case().problem, oracle=wrong, steps=3)


@pytest.mark.parametrize(
    ("given", "missing"), [({}, "name, estimate"), ({"name": "own"}, "estimate")]
)
def test_a_class_that_lacks_a_part_is_refused(
    given: dict[str, str], missing: str
) -> None:
    w = torch.ones(1, requires_grad=True)
    term = oneproj.function(w.sum)
    problem = oneproj.Problem(w, term, {"cap": term <= 2.0})
    unfinished = type("Unfinished", (oneproj.oracles.AbstractOracle,), dict(given))
    with pytest.raises(oneproj.InvalidProblemError, match=f"lacks {missing}"):
        oneproj.solve(problem, oracle=unfinished)


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (None, oneproj.InvalidProblemError),
        (0.5, oneproj.InvalidProblemError),
        ((torch.zeros(()), 0.5), oneproj.InvalidProblemError),
        ((0.5, torch.zeros(3)), oneproj.InvalidProblemError),
        ((math.nan, None), oneproj.NonFiniteError),
    ],
)
def test_what_is_no_estimate_is_refused(returned: object, error: type) -> None:
    class Wrong(oneproj.oracles.AbstractOracle):
        name = "wrong"

        def estimate(self, constraint: object) -> object:
            del constraint
            return returned

    w = torch.ones(1, requires_grad=True)
    term = oneproj.function(w.sum)
    problem = oneproj.Problem(w, term, {"cap": term <= 2.0})
    with pytest.raises(error):
        oneproj.solve(problem, oracle=Wrong, steps=20)
