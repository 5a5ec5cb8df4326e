"""A problem that is quick to run, and a projector that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.projection import AbstractProjector


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


class GivesUp(AbstractProjector):
    """A projector that fails, and leaves the parameters anywhere."""

    name = "gives-up"

    def accepts(self, constraints: object) -> None:
        del constraints

    def project(
        self, parameters: list[Tensor], constraints: Mapping[str, object]
    ) -> oneproj.Projection:
        with torch.no_grad():
            parameters[0].fill_(99.0)
        residuals = dict.fromkeys(constraints, 1.0)
        return oneproj.Projection(oneproj.Status.INFEASIBLE, 1.0, residuals, {}, 1)


@pytest.fixture
def gives_up() -> AbstractProjector:
    """A projector that fails, and says that it took one gradient."""
    return GivesUp()
