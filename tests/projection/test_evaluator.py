"""The evaluator: one point at a time, counted, and the best one remembered."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

import oneproj
from oneproj.errors import NonFiniteError
from oneproj.problem.problem import named_constraints
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.evaluator import FEW, Evaluator
from oneproj.projection.margins import MARGIN_POWER


def setting(*start: float, every: bool = False) -> tuple[Tensor, Evaluator]:
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    stated = {
        "size": oneproj.function(lambda: w.square().sum()) <= 4.0,
        "side": oneproj.function(lambda: w[0]) <= 100.0,
    }
    return w, Evaluator([w], named_constraints(stated), differentiate_all=every)


def vector(*values: float) -> list[Tensor]:
    return [torch.tensor(values, dtype=torch.float64)]


def test_the_first_look_is_at_the_start() -> None:
    w, evaluator = setting(3.0, 0.0)
    assert evaluator.first.values == {"size": 5.0, "side": -97.0}
    assert evaluator.first.worst == 5.0
    assert evaluator.evaluations == 1
    assert evaluator.origin[0].tolist() == w.tolist()
    assert evaluator.best is evaluator.first


def test_only_what_was_violated_is_differentiated() -> None:
    _, evaluator = setting(3.0, 0.0)
    assert set(evaluator.first.gradients) == {"size"}
    assert set(evaluator.move(vector(200.0, 0.0)).gradients) == {"size", "side"}
    # Once suspected, always differentiated: it may bind at the answer.
    assert set(evaluator.move(vector(-3.0, 0.0)).gradients) == {"size", "side"}
    assert evaluator.first.gradients["size"][0].tolist() == [6.0, 0.0]
    _, everything = setting(3.0, 0.0, every=True)
    assert set(everything.first.gradients) == {"size", "side"}


@pytest.mark.parametrize(("count", "seen_once"), [(FEW, True), (FEW + 1, False)])
def test_a_few_constraints_are_seen_once_at_the_first_look(
    count: int,
    seen_once: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    w, seen = torch.tensor([3.0], dtype=torch.float64, requires_grad=True), []

    def size() -> Tensor:
        seen.append(w.item())
        return w.sum()

    idle = {f"idle {k}": oneproj.function(w.sum) <= 9.0 for k in range(count - 1)}
    stated = named_constraints({"size": oneproj.function(size) <= 1.0, **idle})
    seen.clear()
    evaluator = Evaluator([w], stated, differentiate_all=False, suspects=None)
    assert len(seen) == (1 if seen_once else 2)
    assert evaluator.evaluations + evaluator.extra_passes == len(seen)
    # What held there is looked at without its gradient from then on.
    assert set(evaluator.move(vector(-1.0)).gradients) == {"size"}


def test_moves_start_from_the_origin_and_are_counted() -> None:
    w, evaluator = setting(3.0, 0.0)
    for k in range(3):
        seen = evaluator.move(vector(-1.0, float(k)))
        assert w.tolist() == [2.0, float(k)]
        assert seen.values["size"] == float(k * k)
        assert evaluator.evaluations == k + 2
    assert evaluator.origin[0].tolist() == [3.0, 0.0]


def test_the_best_point_is_the_nearest_feasible_one_else_the_least_infeasible() -> None:
    _, evaluator = setting(3.0, 0.0)
    for displacement, best in (
        ((1.0, 0.0), 3.0),  # worse than the start
        ((-0.5, 0.0), 2.5),  # less infeasible
        ((-0.2, 0.0), 2.5),
        ((-3.0, 0.0), 0.0),  # feasible
        ((-0.9, 0.0), 0.0),  # nearer, but not feasible
        ((-1.5, 0.0), 1.5),  # feasible and nearer
        ((-2.0, 0.0), 1.5),
    ):
        evaluator.move(vector(*displacement))
        assert evaluator.best_point[0][0].item() == pytest.approx(best)
    assert evaluator.best.values["size"] == pytest.approx(1.5**2 - 4.0)


def test_the_best_point_is_a_copy() -> None:
    w, evaluator = setting(3.0, 0.0)
    evaluator.move(vector(-3.0, 0.0))
    with torch.no_grad():
        w.fill_(50.0)
    assert evaluator.best_point[0].tolist() == [0.0, 0.0]


def test_the_way_back_to_the_best_point_costs_no_look() -> None:
    w, evaluator = setting(3.0, 0.0)
    evaluator.move(vector(-1.5, 0.0))
    evaluator.move(vector(-3.0, 4.0))
    assert w.tolist() == [0.0, 4.0]
    evaluator.return_to_best()
    assert w.tolist() == [1.5, 0.0]
    evaluator.move(vector(-3.0, 4.0))
    assert evaluator.moved() == 1.5
    assert w.tolist() == [1.5, 0.0]
    assert evaluator.evaluations == 4
    evaluator.move(vector(-1.25, 0.0))
    assert evaluator.moved() == 1.25


def test_the_best_point_survives_what_it_was_made_of() -> None:
    w, evaluator = setting(3.0, 0.0)
    step = vector(-1.5, 0.0)
    evaluator.move(step)
    evaluator.keep_best()
    step[0].zero_()
    evaluator.move(vector(-3.0, 4.0))
    evaluator.return_to_best()
    assert w.tolist() == evaluator.best_point[0].tolist() == [1.5, 0.0]
    assert evaluator.best_distance == 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margins_scale_with_the_bound_the_start_and_the_rounding(
    dtype: torch.dtype,
) -> None:
    w = torch.tensor([3.0], dtype=dtype, requires_grad=True)
    stated = {
        "at": oneproj.function(w.sum) <= 3.0,
        "above": oneproj.function(w.sum) >= 10.0,
        "set": oneproj.sets.Ball(1.0).on(w),
    }
    evaluator = Evaluator([w], named_constraints(stated), differentiate_all=False)
    share = torch.finfo(dtype).eps ** MARGIN_POWER
    expected = {"at": 3.0 * share, "above": 17.0 * share, "set": 2.0 * share}
    assert evaluator.margins == pytest.approx(expected)


def test_margins_follow_the_precision_of_a_loss_that_has_less_than_the_parameters() -> (
    None
):
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    x = torch.ones(4, dtype=torch.float32)
    stated = {"mean": oneproj.mean(lambda b: b * w.float(), data=x) <= 1.0}
    evaluator = Evaluator([w], named_constraints(stated), differentiate_all=False)
    share = torch.finfo(torch.float32).eps ** MARGIN_POWER
    assert evaluator.share == share
    assert evaluator.margins == pytest.approx({"mean": 3.0 * share})


@pytest.mark.parametrize("far", [math.inf, math.nan, 1e39])
def test_a_point_that_is_not_finite_is_not_looked_at(far: float) -> None:
    w = torch.tensor([3.0], requires_grad=True)
    stated = {"falls": oneproj.function(lambda: torch.sigmoid(w.sum())) <= 0.5}
    evaluator = Evaluator([w], named_constraints(stated), differentiate_all=True)
    # In float32 the sigmoid of -1e39 would be a feasible 0.
    with pytest.raises(NonFiniteError):
        evaluator.move([torch.tensor([-far], dtype=torch.float64)])
    assert evaluator.evaluations == 1
    assert w.tolist() == [3.0]


def fragile(
    w: Tensor, error: type[Exception], *, least: float = -10.0
) -> dict[str, AbstractTerm]:
    """A constraint that cannot be computed beyond 10, or below the least."""

    def value() -> Tensor:
        if bool(w > 10.0) or bool(w < least):
            message = "the algorithm failed to converge"
            raise error(message)
        return w.tanh().sum()

    return {"fragile": oneproj.function(value) <= 0.0}


def test_a_decomposition_that_fails_at_a_trial_point_is_no_place_to_go() -> None:
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    done = oneproj.project(w, fragile(w, LinAlgError))
    assert done.residuals["fragile"] <= 0
    assert done.distance == pytest.approx(3.0, rel=1e-3)


def test_other_errors_of_a_constraint_are_the_users_to_see() -> None:
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="failed to converge"):
        oneproj.project(w, fragile(w, RuntimeError, least=2.9))
    assert w.tolist() == [3.0]
    beyond = torch.tensor([30.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(LinAlgError):  # the start itself must be computable
        Evaluator([beyond], fragile(beyond, LinAlgError), differentiate_all=True)


def test_no_constraints_are_satisfied() -> None:
    w = torch.ones(1, requires_grad=True)
    assert Evaluator([w], {}, differentiate_all=False).first.worst == -torch.inf
