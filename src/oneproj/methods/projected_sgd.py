"""Projected SGD, a baseline: every update is followed by a projection.

``x_{k+1} = P_C(P_B(x_k - eta v_k))``, v_k a stochastic gradient of the objective and B
the safeguard ball. Every iterate is feasible, and the projector is called as often as
the gradient. The history pairs the objective at x_k with the residuals at x_{k+1},
which are what was seen of each. The defaults are the paper's plain, constant step; a
base step and a decay are available as in Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.base_steps import BaseLike, DecayLike
from oneproj.methods.baseline import BallStep
from oneproj.oracles import Estimate, OracleLike
from oneproj.results import Projection, Status
from oneproj.schema import Resumable


@dataclass(frozen=True)
class ProjectedSGD(AbstractMethod):
    """Steps on the objective alone, each followed by a projection.

    Args:
        lr: The first step size.
        base: The base step: "sgd", "momentum", "adam", or a maker of an optimiser.
        decay: How the step size falls: "constant", "linear", "cosine", or a scheduler.

    Example:
        >>> import oneproj
        >>> method = oneproj.methods.ProjectedSGD(lr=0.1)
        >>> method.name, method.lr
        ('projected-sgd', 0.1)
    """

    name = "projected-sgd"

    lr: float = 0.05
    base: BaseLike = "sgd"
    decay: DecayLike = "constant"

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Its updates use no minibatches of the constraints."""
        del oracle, scheduled
        return False

    def begin(self, context: Context) -> ProjectedSGDUpdater:
        """Start a run."""
        return ProjectedSGDUpdater(context, self)


class ProjectedSGDUpdater(Resumable, AbstractUpdater):
    """Steps on the objective alone, each followed by a projection."""

    STATE = ("_step", "_oracle")

    def __init__(self, context: Context, options: ProjectedSGD) -> None:
        """Build the step, and the oracle without a penalty."""
        # Neighbouring points: each projection begins with what the last one learned.
        self._context = replace(context, projector=context.projector.warm())
        self._step = BallStep(context, options.lr, options.base, options.decay)
        self._oracle = context.oracle(None)
        self._projection: Projection | None = None

    def update(self) -> Estimate:
        """One gradient, one step, one projection."""
        estimate = self._oracle.backward()
        self._projection = None  # an interrupt from here on leaves an unprojected point
        self._step.take()
        self._projection = replace(self._context.project(), history=())
        return Estimate(estimate.objective, self._projection.residuals)

    @property
    def stuck(self) -> bool:
        """Whether the last projection failed: the next update would begin anywhere."""
        return self._projection is not None and not self._projection.status.ok

    def finish(self) -> Projection:
        """Project, unless the last update ended with it."""
        return self._projection or self._context.project()

    def state_dict(self) -> dict[str, Any]:
        """The states of step and oracle, the last projection, and what it learned.

        The projector's cuts are vectors of the model's size, so the file is that much
        larger.
        """
        done = self._projection
        return super().state_dict() | {
            "projector": self._context.projector.state_dict(),
            "projection": None if done is None else _plain(done),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        super().load_state_dict(state)
        done = state["projection"]
        if done is not None:
            self._projection = Projection(**done | {"status": Status[done["status"]]})
        if state["projector"] is not None:
            problem = self._context.problem
            self._context.projector.load_state_dict(
                state["projector"], problem.parameters, problem.constraints
            )


def _plain(projection: Projection) -> dict[str, Any]:
    """A projection as plain data."""
    fields = dict(vars(projection))
    del fields["history"]
    for name, value in fields.items():
        if isinstance(value, Mapping):
            fields[name] = {key: float(number) for key, number in value.items()}
        elif isinstance(value, np.generic):
            fields[name] = value.item()
    return fields | {"status": projection.status.name}
