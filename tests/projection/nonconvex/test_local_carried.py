"""Local models that stop early, and what they carry from one projection to the next."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.problem import named_constraints
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.chart import Carried
from oneproj.projection.nonconvex.local import project_local
from oneproj.projection.nonconvex.stepper import LocalModels


def point(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def bowl(w: Tensor) -> Evaluator:
    scale = torch.tensor([1.0, 3.0, 9.0], dtype=torch.float64)
    stated = {"bowl": oneproj.function(lambda: scale @ w.square()) <= 1.0}
    return Evaluator([w], named_constraints(stated), differentiate_all=True)


def run(
    evaluator: Evaluator, progress: float, carried: Carried | None = None
) -> LocalModels:
    return project_local(
        evaluator,
        tolerance=1e-8,
        progress=progress,
        max_evaluations=100,
        memory=100,
        capacity=50,
        carried=carried,
    )


def test_less_progress_asked_for_is_nearer_and_costs_more() -> None:
    used, lengths = [], []
    for progress in (1e-1, 1e-3, 0.0):
        evaluator = bowl(point(2.0, 1.0, 1.0))
        found = run(evaluator, progress)
        assert found.feasible
        used.append(evaluator.evaluations)
        lengths.append(found.length)
    assert used[0] < used[1] < used[2]
    assert lengths[0] > lengths[1] >= lengths[2]
    assert lengths[1] <= (1.0 + 1e-3) * lengths[2]


# --- from one projection to the next ------------------------------------------


def steps_apart(carries: bool) -> list[int]:  # noqa: FBT001 - a parameter of the test
    """Projections in a row, each from a small step off the last answer."""
    w, used = point(2.0, 1.0, 1.0), []
    carried = None
    for k in range(8):
        evaluator = bowl(w)
        found = run(evaluator, 1e-4, carried)
        assert found.feasible
        carried = found.carry() if carries else None
        used.append(evaluator.evaluations)
        step = torch.tensor([math.cos(k), 1.0, math.sin(k)], dtype=torch.float64)
        with torch.no_grad():
            w.copy_(evaluator.best_point[0] + 0.05 * step)
    return used[1:]


def test_what_is_carried_saves_gradients() -> None:
    warm, cold = steps_apart(carries=True), steps_apart(carries=False)
    assert sum(warm) < 0.9 * sum(cold)
    assert max(warm) <= 4


def test_what_is_carried_fits_or_is_left_behind() -> None:
    w = point(2.0, 1.0, 1.0)
    carried = run(bowl(w), 1e-4).carry()
    with torch.no_grad():
        w.add_(0.1)
    other = {"other name": oneproj.function(lambda: w.square().sum()) <= 0.5}
    evaluator = Evaluator([w], named_constraints(other), differentiate_all=True)
    assert run(evaluator, 1e-4, carried).feasible
    assert evaluator.best_point[0].norm().item() == pytest.approx(
        math.sqrt(0.5), abs=1e-6
    )
    full = run(bowl(point(2.0, 1.0, 1.0)), 0.0).carry()
    roomy = LocalModels(
        bowl(point(2.0, 1.0, 1.0)), progress=0.0, memory=9, capacity=50, carried=full
    )
    assert roomy._chart.moves > 0, "its curvature goes on"
    tight = LocalModels(
        bowl(point(2.0, 1.0, 1.0)), progress=0.0, memory=9, capacity=4, carried=full
    )
    assert tight.mu.tolist() == full.mu.tolist()
    assert tight._chart.moves == 0, "its frame has another size"
