"""Projected SGD, the rival: every update is followed by a projection.

``x_{k+1} = P_C(P_B(x_k - eta v_k))``, v_k a stochastic gradient of the objective and B
the safeguard ball. Every iterate is feasible, and the projector is called as often as
the gradient. The history pairs the objective at x_k with the residuals at x_{k+1},
which are what was seen of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from oneproj.errors import InvalidProblemError
from oneproj.methods.base import AbstractMethod
from oneproj.methods.setting import Setting
from oneproj.methods.start import move_start_into_ball
from oneproj.oracles import Sight
from oneproj.parameters import project_ball_
from oneproj.projection.project import raise_if_infeasible
from oneproj.results import Projection


@dataclass(frozen=True)
class ProjectedSGDOptions:
    """Settings of Projected SGD."""

    lr: float = 0.05


class ProjectedSGD(AbstractMethod):
    """SGD on the objective alone, projected after every update."""

    name = "projected-sgd"
    Options = ProjectedSGDOptions

    def __init__(self, setting: Setting, options: ProjectedSGDOptions) -> None:
        """Build the oracle without a penalty, and torch's own SGD."""
        # Neighbouring points: each projection begins with what the last one learned.
        self._setting = replace(setting, projector=setting.projector.warm())
        problem = setting.problem
        if not 0 <= options.lr < math.inf:
            message = f"lr is out of range: got {options.lr}."
            raise InvalidProblemError(message)
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        self._oracle = setting.look(None)
        self._sgd = torch.optim.SGD(problem.parameters, lr=options.lr)
        self._projection: Projection | None = None

    def update(self) -> Sight:
        """One gradient, one step, one projection."""
        sight = self._oracle.backward()
        self._projection = None  # an interrupt from here on leaves an unprojected point
        self._sgd.step()
        problem = self._setting.problem
        project_ball_(problem.parameters, problem.radius, problem.center)
        self._projection = self._setting.project()
        raise_if_infeasible(self._projection)
        return Sight(sight.objective, self._projection.residuals)

    def finish(self) -> Projection:
        """Project, unless the last update ended with it."""
        return self._projection or self._setting.project()
