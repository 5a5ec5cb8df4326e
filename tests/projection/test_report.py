"""An answer that is probably not the nearest says so; another says nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import oneproj
from oneproj.projection.cuts import Cuts
from oneproj.projection.report import UNBALANCED, with_remark
from oneproj.results import NEAREST, Projection, Status
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian

BALANCED = Projection(Status.FEASIBLE, 3.0, {"cap": -0.1}, {"cap": 1.0}, 9)


@pytest.mark.parametrize(
    "change",
    [
        {"kkt_residual": UNBALANCED},
        {"kkt_residual": 0.9, "status": Status.INFEASIBLE},
        {"kkt_residual": 0.9, "status": Status.PROVEN_INFEASIBLE},
        {"kkt_residual": 0.9, "lower_bound": 2.9},  # which is proof enough
        {"kkt_residual": 0.9, "relative_distance": NEAREST.negligible_move},
    ],
)
def test_no_remark_without_need(change: dict[str, object]) -> None:
    given = dataclasses.replace(BALANCED, **change)  # type: ignore[arg-type]
    assert with_remark(given, {}) is given


@pytest.mark.parametrize("bound", [None, 1.0])
def test_a_large_kkt_residual_is_put_into_words(bound: float | None) -> None:
    given = dataclasses.replace(BALANCED, kkt_residual=0.82, lower_bound=bound)
    remark = with_remark(given, {}).remark
    assert "A nearer feasible point probably exists: the KKT residual is 0.82" in remark
    assert "To come nearer" in remark


def test_advice_that_was_followed_is_not_given() -> None:
    w = torch.ones(4, requires_grad=True)
    given = dataclasses.replace(BALANCED, kkt_residual=0.82)
    ball = oneproj.sets.Ball(1.0).on(w)
    declared = oneproj.function(w.sum, curvature="linear") <= 1.0
    plain = oneproj.function(w.sum) <= 1.0
    told = with_remark(given, {"ball": ball, "sum": declared}).remark
    assert "declare" not in told
    assert "oneproj.sets" not in told
    told = with_remark(given, {"ball": ball, "sum": plain}).remark
    assert "declare curvature=\"convex\" of 'sum' if it is" in told
    assert "oneproj.sets" not in told
    assert "oneproj.sets" in with_remark(given, {"sum": plain}).remark


def test_a_balance_of_linearisations_is_called_that() -> None:
    generator = torch.Generator().manual_seed(0)
    w = (
        3.0 * torch.randn(3, generator=generator, dtype=torch.float64)
    ).requires_grad_()
    largest = oneproj.function(lambda: w.abs().max())
    projector = Cuts(max_evaluations=10)
    found = oneproj.project(w, {"largest": largest <= 1.0}, projector=projector)
    assert found.kkt_residual < 1e-9
    assert "With the gradients at the answer alone it is 0.77" in found.remark


def sparse() -> tuple[torch.Tensor, dict[str, oneproj.problem.terms.AbstractTerm]]:
    """A budget of square roots, which are steepest at 0: one corner per support."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(8, generator=generator, dtype=torch.float64).requires_grad_()
    roots = oneproj.function(lambda: (w.abs() + 1e-12).sqrt().sum())
    return w, {"roots": roots <= 1.0}


def test_it_is_printed_with_the_projection_and_with_the_solution() -> None:
    w, constraints = sparse()
    projection = oneproj.project(w, constraints)
    assert projection.status.ok
    assert projection.kkt_residual > UNBALANCED
    assert "A nearer feasible point probably exists" in str(projection)
    w, constraints = sparse()
    target = w.detach().clone()
    objective = oneproj.function(lambda: (w - target).square().sum())
    solution = oneproj.solve(oneproj.Problem(w, objective, constraints), steps=4)
    assert solution.feasible
    assert "A nearer feasible point probably exists" in str(solution)


def slightly_outside() -> tuple[torch.Tensor, dict[str, Any]]:
    """Weights with a size over its bound by a hundred thousandth of it."""
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    return w, {"size": oneproj.function(w.norm) <= 5.0 - 5e-5}


class Sideways(Cuts):
    """A projector that ends beside the nearest point, as a search that stops early."""

    def project(self, parameters: Any, constraints: Any) -> Projection:  # noqa: ANN401
        found = super().project(parameters, constraints)
        return dataclasses.replace(found, kkt_residual=0.4)


def test_a_negligible_move_is_a_success_and_nothing_else() -> None:
    w, constraints = slightly_outside()
    done = oneproj.project(w, constraints, projector=Sideways())
    assert done.relative_distance == pytest.approx(1e-5, rel=0.1)
    assert not done.is_nearest  # the property says what is known, as ever
    assert done.status_text == Status.FEASIBLE.value
    assert "nearer" not in str(done)


def test_a_move_that_counts_names_what_may_be_nearer() -> None:
    w, constraints = slightly_outside()
    w.data *= 1.01
    done = oneproj.project(w, constraints, projector=Sideways())
    assert done.relative_distance == pytest.approx(0.01, rel=0.1)
    text = "feasible; a nearer feasible point may exist: KKT residual of the projection"
    assert done.status_text == f"{text} 0.4"
    assert done.status_text in str(done)


@pytest.mark.parametrize("projector", ["cuts", AugmentedLagrangian()])
def test_an_ordinary_projection_has_none(projector: Any) -> None:  # noqa: ANN401 - a literal
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    disc = oneproj.function(lambda: w.square().sum()) <= 1.0
    assert oneproj.project(w, {"disc": disc}, projector=projector).remark == ""


def test_a_step_function_is_named_as_one() -> None:
    w = torch.tensor([2.0, 1.0], requires_grad=True)
    steps = oneproj.function(lambda: torch.sign(w).sum()) <= 0.0
    done = oneproj.project(w, {"steps": steps}, on_failure="return")
    assert "gradient of 'steps' is zero" in done.remark
    assert "surrogate" in done.remark


@pytest.mark.parametrize("start", [0.0, 3.0])
def test_an_answer_that_only_underflow_makes_feasible_is_said_to_be_that(
    start: float,
) -> None:
    w = torch.tensor([start], dtype=torch.float64, requires_grad=True)
    never = oneproj.function(lambda: w.exp().sum(), curvature="convex") <= 0.0
    done = oneproj.project(w, {"never": never}, on_failure="return")
    assert (done.status, done.residuals["never"]) == (Status.FEASIBLE, 0.0)
    assert "'never'" in done.remark
    assert "underflow" in done.remark


def test_a_hinge_that_is_proven_to_be_met_at_the_nearest_point_is_no_underflow() -> (
    None
):
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    hinge = oneproj.function(lambda: (w - 0.5).relu().sum(), curvature="convex")
    done = oneproj.project(w, {"hinge": hinge <= 0.0})
    assert done.residuals["hinge"] == 0.0
    assert w.item() == pytest.approx(0.5)
    assert "underflow" not in done.remark
