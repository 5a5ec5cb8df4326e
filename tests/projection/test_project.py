"""``oneproj.project``: after any optimiser, with messages that name the constraint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import (
    InfeasibleError,
    InvalidProblemError,
    NonFiniteError,
    ProjectionFailed,
)
from oneproj.problem.functions import function
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.closed_form import ClosedForm
from oneproj.projection.cuts import Cuts
from oneproj.projection.project import (
    PROJECTORS,
    choose_projector,
    project,
    raise_if_infeasible,
)
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import Vector
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian


def outside() -> Tensor:
    return torch.tensor([3.0, 4.0], requires_grad=True)


class Stuck(AbstractProjector):
    """Accepts everything and reaches nothing."""

    name = "stuck"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        del constraints
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        self.given = list(parameters)
        residuals = {name: c.value() for name, c in constraints.items()}
        return Projection(Status.INFEASIBLE, 0.0, residuals, {}, gradients=17)


# --- success ------------------------------------------------------------------


def test_a_trained_model_becomes_feasible() -> None:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.randn(1, 3, generator=generator))
        model.bias.zero_()
    adam = torch.optim.Adam(model.parameters(), lr=0.5)
    x = torch.randn(20, 3, generator=generator)
    for _ in range(10):
        adam.zero_grad()
        (model(x) - 10.0).square().mean().backward()
        adam.step()
    bias = model.bias.item()

    done = project(
        model.parameters(), {"weights": oneproj.sets.Ball(0.5).on(model.weight)}
    )

    assert done.residuals_before["weights"] > 0
    assert done.residuals["weights"] <= 0
    assert model.weight.detach().double().norm() <= 0.5
    assert model.bias.item() == bias


@pytest.mark.parametrize(
    "projector", ["auto", "closed-form", "cuts", ClosedForm(), Cuts()]
)
def test_the_projector_can_be_named_or_given(projector: Any) -> None:  # noqa: ANN401
    w = outside()
    done = project(w, {"size": oneproj.sets.Ball(1.0).on(w)}, projector=projector)
    assert done.status is Status.FEASIBLE
    # The margin of "cuts" in float32 is 6e-6 of the residual at the start, which is 4.
    expected = torch.tensor([0.6, 0.8])
    torch.testing.assert_close(w.detach(), expected, rtol=0, atol=4e-5)


def test_auto_takes_the_closed_form_where_there_is_one() -> None:
    w = outside()
    ball = oneproj.sets.Ball(1.0).on(w)
    assert choose_projector("auto", {"a": ball}).name == "closed-form"
    for other in (oneproj.sets.Ball(2.0).on(w), function(w.norm) <= 1.0):
        assert choose_projector("auto", {"a": ball, "b": other}).name == "cuts"


def test_a_function_is_projected_onto_without_being_asked_twice() -> None:
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    done = project(w, {"size": function(w.norm) <= 1.0})
    assert done.residuals["size"] <= 0
    assert w.tolist() == pytest.approx([0.6, 0.8], abs=1e-10)


def test_two_sets_on_one_tensor_are_projected_onto_together() -> None:
    # The corner of the unit disc and the halfplane x_1 <= 0: (0, 1).
    w = torch.tensor([1.0, 5.0], dtype=torch.float64, requires_grad=True)
    half = oneproj.sets.Halfspace(torch.tensor([1.0, 0.0]), offset=0.0)
    done = project(w, {"disc": oneproj.sets.Ball(1.0).on(w), "side": half.on(w)})
    assert w.tolist() == pytest.approx([0.0, 1.0], abs=1e-8)
    # (1, 5) - (0, 1) = 4 (0, 1) + 1 (1, 0)
    assert done.multipliers == pytest.approx({"disc": 4.0, "side": 1.0}, abs=1e-5)


def test_a_projector_gets_the_tensors_that_move() -> None:
    w, frozen, stuck = outside(), torch.ones(2), Stuck()
    constraints = {"size": function(w.norm) <= 1.0}
    project([frozen, w], constraints, projector=stuck, on_failure="return")
    assert [id(t) for t in stuck.given] == [id(w)]


def test_every_projector_is_known_by_its_own_name() -> None:
    for name, make in PROJECTORS.items():
        assert make.name == name
        assert choose_projector(name, {}).name == name  # type: ignore[arg-type]


# --- failure ------------------------------------------------------------------


def test_failure_raises_with_the_worst_constraint_and_its_residual() -> None:
    w = outside()
    constraints = {
        "sum": function(w.sum) <= 6.5,
        "size": function(w.norm) <= 1.0,
        "other": function(w.sum) <= 100.0,
    }
    match = (
        r"'sum', 'size'\] could not be met together: at the best point the largest "
        r"residual, of 'size', is 4.000e\+00 > 0, at a distance of 0.000e\+00, after 17"
    )
    with pytest.raises(InfeasibleError, match=match) as failure:
        project(w, constraints, projector=Stuck())
    assert isinstance(failure.value, ProjectionFailed)
    told = str(failure.value)
    assert "enough, at the best point, is 'sum' by 0.5, 'size' by 4;" in told
    assert "another projector" in told
    assert "parameters are where they were" in told
    assert 'on_failure="return"' in told
    assert w.tolist() == [3.0, 4.0]


def test_where_no_point_exists_only_bounds_are_advised() -> None:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    total, again = (function(w.sum, curvature="linear") for _ in range(2))
    constraints = {"low": total <= 0.0, "high": again >= 1.0}
    with pytest.raises(InfeasibleError, match="no point satisfies all") as failure:
        project(w, constraints)
    told = str(failure.value)
    assert "only looser bounds do. The search ended where that was proven" in told
    assert "enough there is 'low' by 0.5, 'high' by 0.5, elsewhere less may" in told
    assert "Leave one constraint out at a time" in told
    for wrong in ("Try:", "nearer to the feasible set", "(c) another projector"):
        assert wrong not in told
    # And that much is enough.
    project(w, {"low": total <= 0.0, "high": total >= 1.0 - 1.0})


@pytest.mark.parametrize("curvature", ["linear", None])
def test_an_equality_without_room_is_told_to_have_some(
    curvature: oneproj.problem.terms.Curvature | None,
) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(7, generator=generator)
    w = torch.randn(7, generator=generator).requires_grad_()
    total = function(lambda: a @ w, curvature=curvature)
    equal = {"above": total <= 0.7, "below": total >= 0.7}
    with pytest.raises(InfeasibleError, match="an equality, which rounding") as failure:
        project(w, equal)
    assert "room between the two" in str(failure.value)
    assert "nearer" not in str(failure.value)
    # And that much room is enough.
    assert project(w, {"above": total <= 0.7001, "below": total >= 0.6999}).status.ok


def test_an_equality_that_others_exclude_is_not_blamed_on_rounding() -> None:
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    constraints = {
        "above": function(w.sum) <= 9.0,
        "below": function(w.sum) >= 9.0,
        "size": function(w.norm) <= 1.0,
    }
    with pytest.raises(InfeasibleError, match="a looser bound") as failure:
        project(w, constraints)
    assert "equality" not in str(failure.value)


def test_one_constraint_that_cannot_hold_is_not_said_to_exclude_others() -> None:
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    square = function(lambda: w.square().sum(), curvature="convex")
    with pytest.raises(InfeasibleError, match="only looser bounds do") as failure:
        project(w, {"negative": square <= -1.0})
    assert "Leave one" not in str(failure.value)


def test_declared_constraints_are_not_told_to_be_declared() -> None:
    unproven = Projection(Status.INFEASIBLE, 1.0, {"risk": 0.1}, {}, 9, lower_bound=0.5)
    with pytest.raises(InfeasibleError, match="do not prove that no point") as failure:
        raise_if_infeasible(unproven)
    told = str(failure.value)
    assert "enough, at the best point, is 'risk' by 0.1" in told
    for wrong in ("curvature=", "another projector", "nearer to the feasible set"):
        assert wrong not in told


def test_a_value_that_overflows_at_the_start_is_not_blamed_on_a_learning_rate() -> None:
    w = torch.full((2,), 1e3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(NonFiniteError, match="smaller parameters") as failure:
        project(w, {"exp": function(lambda: w.exp().sum()) <= 1.0})
    assert "learning rate" not in str(failure.value)


def test_failure_can_be_returned() -> None:
    w = outside()
    constraints = {"size": function(w.norm) <= 1.0}
    done = project(w, constraints, projector=Stuck(), on_failure="return")
    assert not done.status.ok
    assert done.residuals == {"size": 4.0}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("on_failure", ["raise", "return"])
@pytest.mark.parametrize("projector", ["cuts", AugmentedLagrangian()])
def test_whatever_is_raised_the_parameters_are_where_they_were(
    interruption: type[BaseException],
    on_failure: Any,  # noqa: ANN401 - a literal
    projector: Any,  # noqa: ANN401 - a literal
) -> None:
    w, calls = outside(), []

    def broken() -> Tensor:
        calls.append(w.tolist())
        if len(calls) > 4:
            raise interruption
        return w.pow(4).sum()

    constraints = {"broken": function(broken) <= 0.1}
    with pytest.raises(interruption):
        project(w, constraints, projector=projector, on_failure=on_failure)
    assert calls[-1] != [3.0, 4.0]
    assert w.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("status", [Status.FEASIBLE, Status.INTERRUPTED])
def test_success_does_not_raise(status: Status) -> None:
    raise_if_infeasible(Projection(status, 0.0, {}, {}, 0))


# --- refusals -----------------------------------------------------------------

W = outside()
BALL = oneproj.sets.Ball(1.0)
ELSEWHERE = torch.tensor([30.0, 40.0], requires_grad=True)
FROZEN = torch.tensor([30.0, 40.0])
REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no set": (
        W,
        {"size": function(W.norm) <= 1.0},
        {"projector": "closed-form"},
        r"No projector can handle.*closed-form: 'size' is not a closed-form set",
    ),
    "two sets on one tensor": (
        W,
        {"a": BALL.on(W), "b": BALL.on(W)},
        {"projector": "closed-form"},
        "'a' and 'b' constrain the same tensor",
    ),
    "unknown projector": (
        W,
        {"size": BALL.on(W)},
        {"projector": "newton"},
        "no projector 'newton'. Known: auto, closed-form, cuts",
    ),
    "unknown failure": (
        W,
        {"size": BALL.on(W)},
        {"on_failure": "rise"},
        "on_failure must be .* got 'rise'",
    ),
    "duplicate names": (
        W,
        [("size", BALL.on(W)), ("size", BALL.on(W))],
        {},
        "cannot be called 'size': another one",
    ),
    "no bound": (W, {"size": function(W.norm)}, {}, "says no bound"),
    "frozen parameters": (FROZEN, {"size": BALL.on(W)}, {}, "nothing to optimise"),
    "a tensor elsewhere": (
        W,
        {"size": BALL.on(ELSEWHERE)},
        {},
        "'size' does not depend on the parameters",
    ),
    "a frozen tensor": (
        [W, FROZEN],
        {"size": BALL.on(FROZEN)},
        {},
        "'size' does not depend on.*same tensors",
    ),
}


@pytest.mark.parametrize(
    ("parameters", "constraints", "options", "match"), REFUSED.values(), ids=REFUSED
)
def test_bad_input_is_refused_before_anything_moves(
    parameters: Any,  # noqa: ANN401 - bad on purpose
    constraints: Any,  # noqa: ANN401 - bad on purpose
    options: dict[str, Any],
    match: str,
) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        project(parameters, constraints, **options)
    assert W.tolist() == [3.0, 4.0]
    assert ELSEWHERE.tolist() == FROZEN.tolist() == [30.0, 40.0]


def test_a_constraint_that_changes_the_parameters_is_refused_and_they_stay() -> None:
    rows = torch.nn.Embedding(3, 2, max_norm=1.0)
    with torch.no_grad():
        rows.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 5.0], [1.0, 0.0]]))
    total = function(lambda: rows(torch.arange(3)).sum()) <= -1.0
    with pytest.raises(InvalidProblemError, match=r"'total' changes.*max_norm"):
        project(rows.weight, {"total": total})
    assert rows.weight.tolist() == [[3.0, 4.0], [0.0, 5.0], [1.0, 0.0]]
    with pytest.raises(InvalidProblemError, match=r"'objective' changes"):
        oneproj.Problem(rows.weight, function(lambda: rows(torch.arange(3)).sum()), {})


def test_a_constraint_that_is_not_finite_is_named() -> None:
    w = outside()
    constraints = {"size": function(lambda: math.nan * w.sum()) <= 1.0}
    with pytest.raises(NonFiniteError, match="the value of 'size' at the start"):
        project(w, constraints, projector=Stuck())


# --- progress -----------------------------------------------------------------


@pytest.mark.parametrize("projector", ["cuts", AugmentedLagrangian()])
def test_progress_names_the_gradients_and_the_worst_residual(
    projector: Any,  # noqa: ANN401 - a literal
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    @contextmanager
    def line(label: str, *, enabled: bool | None) -> Iterator[Any]:
        assert (label, enabled) == ("projecting", True)
        yield said.append

    monkeypatch.setattr("oneproj.projection.project.progress_line", line)
    w = outside()
    disc = function(lambda: w.square().sum()) <= 1.0
    done = project(w, {"disc": disc}, projector=projector, progress=True)
    assert said[0] == "1 full gradients, worst residual 2.40e+01"
    assert len(said) == done.gradients
    # Nobody watches what comes after.
    Cuts().project([w], {"disc": disc.named("disc")})
    assert len(said) == done.gradients


def test_nothing_is_shown_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    w = outside()
    project(w, {"disc": function(lambda: w.square().sum()) <= 1.0})
    assert capsys.readouterr() == ("", "")
