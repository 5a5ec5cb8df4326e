"""A problem that is quick to run, made anew for each run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import oneproj


@pytest.fixture
def nearest_in_ball() -> Callable[[], oneproj.Problem]:
    """Makes the problem: the point of the unit ball that is nearest to (3, 4)."""

    def make() -> oneproj.Problem:
        w = torch.tensor([0.3, -0.2], requires_grad=True)
        target = torch.tensor([3.0, 4.0])
        return oneproj.Problem(
            w,
            objective=oneproj.function(lambda: (w - target).square().sum()),
            constraints={"size": oneproj.sets.Ball(1.0).on(w)},
            radius=10.0,
        )

    return make
