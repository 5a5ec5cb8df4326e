"""A problem checks its parts when it is built, and names what does not fit."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import (
    InvalidProblemError,
    NonFiniteError,
    OneprojWarning,
    Problem,
    function,
    mean,
)
from oneproj.problem.problem import check_problem

W = torch.tensor([2.0, 0.0], requires_grad=True)
ELSEWHERE = torch.ones(2, requires_grad=True)
OBJECTIVE = function(lambda: W.square().sum())
SIZE = function(W.norm) <= 1.0


def test_a_problem_holds_its_parts() -> None:
    frozen = torch.ones(3)
    x = torch.arange(3.0)
    risk = mean(lambda b: W[0] * b, x)
    problem = Problem(
        [W, frozen],
        objective=OBJECTIVE,
        constraints={"size": SIZE, "risk": risk >= 5.0},
        radius=3,
        center=[torch.ones(2)],
    )
    assert [id(p) for p in problem.parameters] == [id(W)]
    assert problem.objective.name == "objective"
    assert [c.name for c in problem.constraints.values()] == ["size", "risk"]
    assert problem.radius == 3.0
    assert problem.center is not None
    assert problem.center[0].tolist() == [1.0, 1.0]
    assert problem.residuals() == {"size": 1.0, "risk": 3.0}


def test_the_users_terms_keep_their_own_name() -> None:
    Problem(W, OBJECTIVE, {"size": SIZE})
    assert (OBJECTIVE.name, SIZE.name) == ("term", "term")


def test_building_changes_nothing() -> None:
    w = torch.tensor([2.0, 0.0], requires_grad=True)
    w.grad = torch.tensor([7.0, 7.0])
    Problem(w, function(w.sum), {"s": oneproj.sets.Ball(1.0).on(w)}, 1.0)
    assert w.tolist() == [2.0, 0.0]
    assert w.grad.tolist() == [7.0, 7.0]


def test_without_constraint_or_ball() -> None:
    problem = Problem(W, OBJECTIVE, {})
    assert (problem.radius, problem.center, problem.residuals()) == (math.inf, None, {})


def test_the_center_is_a_copy_in_the_dtype_of_the_parameters() -> None:
    center = torch.ones(2, dtype=torch.float64)
    problem = Problem(W, OBJECTIVE, {}, 1.0, center)
    center.zero_()
    assert problem.center is not None
    assert problem.center[0].dtype == torch.float32
    assert problem.center[0].tolist() == [1.0, 1.0]
    same_dtype = torch.ones(2)
    copied = Problem(W, OBJECTIVE, {}, 1.0, same_dtype).center
    assert copied is not None
    assert copied[0].data_ptr() != same_dtype.data_ptr()


def test_terms_are_tried_twice_on_at_most_three_examples() -> None:
    sizes: list[int] = []

    def fn(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return W[0] * batch

    Problem(
        W,
        mean(fn, torch.ones(1)),
        {"c": mean(fn, torch.ones(9)) <= 1.0},
    )
    assert sizes == [1, 1, 3, 3], "of one size, or a compiled model is compiled again"


def test_a_problem_can_be_built_without_grad_mode() -> None:
    with torch.no_grad():
        Problem(W, OBJECTIVE, {"size": SIZE})


# --- the parts ----------------------------------------------------------------

PARTS: dict[str, tuple[dict[str, Any], str]] = {
    "duplicate names": (
        {"constraints": [("size", SIZE), ("size", SIZE)]},
        "cannot be called 'size': another one has that name",
    ),
    "empty name": ({"constraints": {"": SIZE}}, "called '': it must be a string"),
    "number as name": ({"constraints": {1: SIZE}}, "called 1: it must be a string"),
    "reserved": ({"constraints": {"seconds": SIZE}}, "cannot be called 'seconds'"),
    "no bound": (
        {"constraints": {"size": function(W.norm)}},
        "constraint 'size' is a Function, which says no bound.*<= 0.1",
    ),
    "equality": (
        {"constraints": {"size": OBJECTIVE == 1.0}},
        "constraint 'size' is False.*compared by ==.*two constraints",
    ),
    "a set of nothing": (
        {"constraints": {"size": oneproj.sets.Ball(1.0)}},
        r"constraint 'size' is a Ball, which says no bound.*\.on\(weight\)",
    ),
    "radius zero": ({"radius": 0.0}, "one number > 0, got 0.0.*leave it out"),
    "radius negative": ({"radius": -1}, "one number > 0, got -1"),
    "radius NaN": ({"radius": math.nan}, "one number > 0, got nan"),
    "plain objective": (
        {"objective": lambda: 2 * W.sum()},
        "objective is a function. Wrap it: oneproj.mean",
    ),
    "constraint as objective": ({"objective": SIZE}, "objective is a Constraint"),
    "no parameters": ({"parameters": []}, "nothing to optimise"),
    "without grad": (
        {"parameters": [torch.ones(2)]},
        r"1 frozen or empty tensor.*requires_grad=True",
    ),
    "center of another shape": (
        {"radius": 1.0, "center": torch.ones(3)},
        r"shaped like the parameters \[\(2,\)\].*but got \[\(3,\)\]",
    ),
    "too many centers": (
        {"radius": 1.0, "center": [torch.ones(2), torch.ones(2)]},
        r"but got \[\(2,\), \(2,\)\]",
    ),
    "center NaN": (
        {"radius": 1.0, "center": torch.tensor([0.0, math.nan])},
        "center must be finite",
    ),
}


@pytest.mark.parametrize(("change", "match"), PARTS.values(), ids=PARTS)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], match: str) -> None:
    given = {"parameters": W, "objective": OBJECTIVE, "constraints": {"size": SIZE}}
    with pytest.raises(InvalidProblemError, match=match):
        Problem(**(given | change))


# --- the terms ----------------------------------------------------------------

DATA = torch.tensor([1.0, 2.0, 3.0])
UNCONNECTED = "does not depend on the parameters of this problem.*same tensors"
SHAPE = "must return one value per example"
TERMS: dict[str, tuple[Any, str]] = {
    "other parameters": (function(ELSEWHERE.sum), UNCONNECTED),
    "data alone": (mean(lambda b: b, DATA), UNCONNECTED),
    "detached": (function(lambda: W.detach().sum()), UNCONNECTED),
    "item": (mean(lambda b: W[0].item() * b, DATA), UNCONNECTED),
    "averaged": (mean(lambda b: (W[0] * b).mean(), DATA), SHAPE),
    "column": (mean(lambda b: W[0] * b[:, None], DATA), SHAPE),
    "vector": (function(lambda: W), "must return a scalar tensor"),
}


@pytest.mark.parametrize(("term", "match"), TERMS.values(), ids=TERMS)
def test_a_term_is_tried_when_the_problem_is_built(term: Any, match: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidProblemError, match=f"'objective' {match}"):
        Problem(W, term, {"size": SIZE})
    with pytest.raises(InvalidProblemError, match=f"'fine cap' {match}"):
        Problem(W, OBJECTIVE, {"size": SIZE, "fine cap": term <= 1.0})


def test_a_set_on_a_tensor_elsewhere_is_refused() -> None:
    elsewhere = oneproj.sets.Ball(1.0).on(ELSEWHERE)
    with pytest.raises(InvalidProblemError, match=f"'ball' {UNCONNECTED}"):
        Problem(W, OBJECTIVE, {"ball": elsewhere})


def test_empty_data_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="holds 0 examples"):
        Problem(W, mean(lambda b: W[0] * b, DATA[:0]), {})


def test_data_with_nan_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"1 NaN or inf.*first in row 1\."):
        Problem(W, mean(lambda b: W[0] * b, torch.tensor([1.0, math.nan])), {})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_at_the_start_names_the_term(bad: float) -> None:
    term = function(lambda: bad * W.sum())
    with pytest.raises(NonFiniteError, match="the value of 'objective' at the start"):
        Problem(W, term, {})
    with pytest.raises(NonFiniteError, match="the value of 'cap' at the start"):
        Problem(W, OBJECTIVE, {"cap": term <= 1.0})


def test_reaching_one_parameter_is_enough() -> None:
    Problem([ELSEWHERE, W], function(lambda: W.sum() + ELSEWHERE.sum()), {})
    Problem([ELSEWHERE, W], function(W.sum), {})


def test_pairs_keep_their_order() -> None:
    pairs = [(name, SIZE) for name in ("z", "a", "m")]
    for given in (pairs, iter(pairs)):
        assert list(Problem(W, OBJECTIVE, given).constraints) == ["z", "a", "m"]


def test_constraints_without_names_are_refused() -> None:
    w = torch.ones(1, requires_grad=True)
    size = function(w.norm)
    with pytest.raises(InvalidProblemError, match="Constraints need names"):
        Problem(w, size, [size <= 1.0])


def test_an_accuracy_is_told_from_a_wrong_tensor() -> None:
    errors = mean(lambda b: (b * W[0] < 0).float(), torch.ones(3))
    with pytest.raises(InvalidProblemError, match=r"an accuracy.*use a rate"):
        Problem(W, OBJECTIVE, {"errors": errors <= 0.1})


def test_a_random_constraint_is_told_of_a_random_objective_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(5)
    noisy = oneproj.mean(
        lambda b: b * W.sum() + torch.rand(len(b), generator=generator), x
    )
    with pytest.warns(OneprojWarning, match=r"'cap' is random: .* was -?\d.*, then"):
        Problem([W], objective=noisy, constraints={"cap": noisy <= 1.0})
    Problem([W], objective=noisy, constraints={})


def test_a_constraint_whose_examples_depend_on_their_batch_is_told_of() -> None:
    x = torch.arange(9.0)
    centered = oneproj.mean(lambda b: W.sum() * (b - b.mean()).square(), x)
    with pytest.warns(OneprojWarning, match=r"'cap' .* depends on the rest of its ba"):
        Problem([W], objective=centered, constraints={"cap": centered <= 1.0})
    Problem([W], objective=centered, constraints={})


def test_a_problem_prints_what_it_is_about() -> None:
    model = torch.nn.Linear(4, 1)
    risk = mean(lambda x: model(x).squeeze(-1), torch.ones(5, 4))
    ball = oneproj.sets.Ball(2.0).on(model.weight)
    plain = Problem(model.parameters(), risk, {})
    assert repr(plain) == (
        "Problem: 5 parameters in 2 tensors, objective mean over 5 examples, "
        "no constraints"
    )
    both = Problem(model.parameters(), risk, {"a": risk >= 0.5, "b": ball}, radius=3)
    assert repr(both).endswith(
        "constraints 'a': mean over 5 examples >= 0.5; "
        "'b': tensor of shape (1, 4) in Ball(radius=2), radius 3"
    )


# --- what happens to the tensors afterwards -------------------------------------------


def of_a_model(bound: float) -> tuple[torch.nn.Linear, Problem]:
    model, x = torch.nn.Linear(2, 1), torch.eye(2)
    for p in model.parameters():
        torch.nn.init.constant_(p, 0.25)  # some starts are told of, by chance
    losses = lambda batch: model(batch).squeeze(-1).square()  # noqa: E731 - as users do
    terms = mean(losses, x), {"cap": mean(losses, x) <= bound}
    return model, Problem(model.parameters(), *terms, radius=9.0)


@pytest.mark.parametrize("bound", [100.0, 0.0001], ids=["slack", "active"])
@pytest.mark.parametrize(
    "entry",
    [partial(oneproj.solve, steps=10), oneproj.certify],
    ids=["solve", "certify"],
)
def test_a_term_that_lost_the_parameters_is_named(entry: Any, bound: float) -> None:  # noqa: ANN401 - two functions
    model, problem = of_a_model(bound)
    entry(problem)
    state = {name: kept.clone() for name, kept in model.state_dict().items()}
    model.load_state_dict(state)
    entry(problem)
    model.load_state_dict(state, assign=True)
    with pytest.raises(InvalidProblemError, match=r"'objective' does not.* any more"):
        entry(problem)


@pytest.mark.filterwarnings("ignore:step.. is called, but no parameter")
def test_parameters_that_a_callback_replaced_are_told_of() -> None:
    model, problem = of_a_model(0.0001)

    def load(update: oneproj.Update) -> None:
        if update.update == 5:
            state = {name: kept.clone() for name, kept in model.state_dict().items()}
            model.load_state_dict(state, assign=True)

    with pytest.raises(InvalidProblemError, match=r"does not.* any more.*assign=True"):
        oneproj.solve(problem, steps=10, callbacks=load)


def test_the_look_at_the_terms_draws_nothing_of_the_users() -> None:
    noise = function(lambda: (W + torch.rand(2)).square().sum())
    problem = Problem([W], noise, {})
    before = torch.get_rng_state()
    check_problem(problem)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_deep_copy_of_closures_is_refused() -> None:
    _, problem = of_a_model(100.0)
    with pytest.raises(InvalidProblemError, match=r"any more.*a deep copy"):
        oneproj.solve(copy.deepcopy(problem), steps=1)
    assert copy.copy(problem).parameters[0] is problem.parameters[0]


class Scorer(torch.nn.Linear):
    def losses(self, batch: Tensor) -> Tensor:
        return self(batch).squeeze(-1).square()


def test_a_deep_copy_of_methods_is_a_problem_of_its_own() -> None:
    model = Scorer(2, 1)
    risk = mean(model.losses, torch.eye(2))
    size = function(model.weight.norm) <= 0.1
    problem = Problem(model.parameters(), risk, {"size": size}, model=model)
    before = [p.detach().clone() for p in problem.parameters]
    twin = copy.deepcopy(problem)
    solution = oneproj.solve(twin, steps=20)
    assert solution.feasible
    assert all(
        torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)
    )
    assert twin.parameters[0].norm() <= 0.1
    assert twin.model is not model
    assert twin.objective.value() == solution.objective != problem.objective.value()


def test_bounds_that_exclude_each_other_are_refused() -> None:
    size = function(lambda: W.square().sum())
    both = {"small": size <= 0.1, "large": size >= 0.2}
    with pytest.raises(InvalidProblemError, match=r"'large' and 'small' contradict"):
        oneproj.project(W, both)
    Problem(W, OBJECTIVE, {"small": size <= 0.2, "large": size >= 0.1})
    twin = function(lambda: -W.square().sum())  # another term may be anything
    Problem(W, OBJECTIVE, {"small": size <= 0.1, "large": twin >= 0.2})
