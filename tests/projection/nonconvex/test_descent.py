"""Descent on what is violated: where it leads, when it gives up."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex import stepper
from oneproj.projection.nonconvex.descent import PATIENCE, descend, find_inside


def banana(w: torch.Tensor) -> dict[str, AbstractTerm]:
    """A curved valley: |w_1 - w_0^2| small and w_0 <= -1, seen from the other end."""
    bent = oneproj.function(lambda: 10 * (w[1] - w[0].square()).square())
    left = oneproj.function(lambda: w[0])
    return {"valley": bent <= 0.01, "left": left <= -1.0}


def start() -> torch.Tensor:
    return torch.tensor([2.0, 4.0], dtype=torch.float64, requires_grad=True)


def test_it_reaches_a_feasible_point_and_the_view_knows_it() -> None:
    w = start()
    evaluator = Evaluator([w], banana(w), differentiate_all=True)
    assert descend(evaluator, looks=2000)
    assert evaluator.best.worst <= 0
    assert max(c.value() for c in banana(evaluator.best_point[0]).values()) <= 0


def test_an_empty_set_is_given_up_in_time() -> None:
    w = start()
    square = oneproj.function(lambda: w.square().sum())
    evaluator = Evaluator([w], {"none": square <= -1.0}, differentiate_all=True)
    assert not descend(evaluator, looks=5000)
    assert evaluator.evaluations < 1000
    assert evaluator.best.worst == pytest.approx(1.0, abs=1e-2)


def test_the_looks_are_limited() -> None:
    w = start()
    evaluator = Evaluator([w], banana(w), differentiate_all=True)
    assert not descend(evaluator, looks=3)
    assert evaluator.evaluations == 1 + 3
    assert PATIENCE > 3


def test_a_start_that_stays_the_best_point_is_not_moved() -> None:
    w = torch.tensor([3.0, 0.0], dtype=torch.float64, requires_grad=True)
    hole = torch.tensor([0.9, 0.0], dtype=torch.float64)

    def cave() -> torch.Tensor:
        inside = (w - hole).norm() < 0.02
        return torch.where(inside, 0.5, 1.0) + 1e-3 * torch.tanh(w.sum())

    found = oneproj.project(
        w, {"cave": oneproj.function(cave) <= 0.0}, on_failure="return"
    )
    assert found.residuals["cave"] == pytest.approx(float(cave().detach()), abs=1e-12)
    assert found.residuals["cave"] < 0.6


def test_a_start_that_is_inside_is_the_answer() -> None:
    w = torch.tensor([3.0, 0.0], requires_grad=True)
    ring = oneproj.function(
        lambda: ((w.norm() - 0.9).abs() > 0.1).float() + 0.0 * w.sum()
    )
    found = oneproj.project(w, {"ring": ring <= 0.0})
    assert found.status.ok
    assert not w.detach().isnan().any()
    assert w.requires_grad


def test_no_optimiser_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first one of a process imports torch's compiler, which takes seconds.
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch.optim.Optimizer, "__init__", refuse)
    w = start()
    assert descend(Evaluator([w], banana(w), differentiate_all=True), looks=2000)


def stairs(w: torch.Tensor) -> dict[str, AbstractTerm]:
    """The share of three scores below 0.5, cut off: no slope where they are large."""
    scores = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    share = oneproj.function(
        lambda: (0.5 - (w[0] * scores + w[1])).clamp(0.0, 1.0).mean()
    )
    return {"share": share <= 0.1}


def test_a_flat_start_costs_no_looks_and_other_ways_lead_inside() -> None:
    w = torch.tensor([4.0, 0.0], dtype=torch.float64, requires_grad=True)
    evaluator = Evaluator([w], stairs(w), differentiate_all=True)
    assert not descend(evaluator, looks=100)
    assert evaluator.evaluations == 1, "no slope, no descent"
    assert find_inside(evaluator, looks=200)
    assert evaluator.best.worst <= 0


def test_the_size_of_the_slope_does_not_matter() -> None:
    # Adam alone does not move for gradients far below its epsilon.
    for factor in (1.0, 1e-20):
        w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)

        def disc(w: torch.Tensor = w, factor: float = factor) -> torch.Tensor:
            return factor * (w.square().sum() - 1.0)

        stated = {"disc": oneproj.function(disc) <= 0.0}
        assert descend(Evaluator([w], stated, differentiate_all=True), looks=100)


def test_a_bound_on_a_size_is_met_where_nothing_is_left() -> None:
    w = torch.tensor([2.0, -3.0], dtype=torch.float64, requires_grad=True)
    rounded = oneproj.function(lambda: w.abs().max().ceil() + 0.0 * w.sum())
    evaluator = Evaluator([w], {"size": rounded <= 0.0}, differentiate_all=True)
    assert find_inside(evaluator, looks=50)
    assert evaluator.best_point[0].tolist() == [0.0, 0.0]


def test_what_helped_so_far_is_followed() -> None:
    w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)

    def stair() -> torch.Tensor:  # a slope down to 2, a plateau up to 20, then nothing
        return torch.where(w < 20.0, (2.0 - w).clamp(min=0.0) + 1.0, 0.0 * w).sum()

    evaluator = Evaluator(
        [w], {"stair": oneproj.function(stair) <= 0.0}, differentiate_all=True
    )
    evaluator.move([torch.tensor([1.5], dtype=torch.float64)])
    assert find_inside(evaluator, looks=100)
    assert evaluator.best_distance == pytest.approx(24.0)


def test_projection_falls_back_on_it_and_improves_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Models whose steps lead nowhere stand for a landscape that defeats them.
    monkeypatch.setattr(stepper.LocalModels, "restore", lambda *_: None)
    monkeypatch.setattr(stepper.LocalModels, "leave_contradiction", lambda _: False)
    plain = stepper.LocalModels.advance

    def advance(models: stepper.LocalModels) -> float:
        return plain(models) if models.feasible else 0.0

    monkeypatch.setattr(stepper.LocalModels, "advance", advance)
    w = torch.tensor([3.0, 0.0], dtype=torch.float64, requires_grad=True)
    ring = oneproj.function(lambda: -w.square().sum().log())
    far = {"ring": ring <= -4.0}
    done = oneproj.project(w, far, projector="cuts")
    assert done.residuals["ring"] <= 0
    assert done.distance == pytest.approx(torch.e**2 - 3.0, rel=0.02)
