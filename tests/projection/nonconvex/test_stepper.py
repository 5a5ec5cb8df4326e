"""The steps of the local models: what they must not undo."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.stepper import LocalModels


def test_the_way_to_the_best_point_is_not_undone() -> None:
    # At the end of Rosenbrock's valley the slope is nearly 0: a model without curvature
    # believes that the start is as good, and needs no penalty to go back to it.
    w = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    bent = oneproj.function(
        lambda: 100 * (w[1] - w[0].square()).square() + (1 - w[0]).square()
    )
    evaluator = Evaluator([w], {"valley": bent <= 0.01}, differentiate_all=True)
    models = LocalModels(evaluator, progress=1e-4, memory=10, capacity=10)
    evaluator.move([torch.tensor([2.2, 0.0], dtype=torch.float64)])
    models.resume()
    assert models.feasible
    assert models.length == pytest.approx(2.2)
    models.advance()
    assert models.length > 1.1
    assert models.place.look.worst < 0.1 * evaluator.first.worst
