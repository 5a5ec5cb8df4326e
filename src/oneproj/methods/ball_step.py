"""The step that the rivals share: ``x <- P_B(x - eta_k v)``, the gradient in ``.grad``.

With ``base="sgd"`` it is the stochastic subgradient step that their theorems are about;
momentum and Adam are offered as they are to Algorithm 1, so that a comparison need not
be one of base steps. With eta_k falling linearly to zero the last iterate of a convex
problem is as good as an average, O(1 / sqrt(N)) without a logarithm (Zamani and
Glineur, Exact convergence rate of the last iterate in subgradient methods; Defazio,
Cutkosky, Mehta and Mishchenko, Optimal linear decay learning rate schedules and further
refinements, for stochastic gradients).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneproj.arguments import check_number
from oneproj.methods.optimizer.base_steps import (
    BaseLike,
    DecayLike,
    choose_base,
    schedule_lr,
)
from oneproj.methods.optimizer.checks import STEP
from oneproj.methods.optimizer.edge import step_in_ball_
from oneproj.methods.optimizer.start import make_base, move_start_into_ball
from oneproj.methods.setting import Setting
from oneproj.schema import AbstractSchema, Fields, Flag
from oneproj.tensor_schema import optimizer_state, scheduler_state


class BallStep:
    """Steps of ``torch.optim``, back into the ball, with sizes that may decay.

    Args:
        setting: Of the run; a start outside the ball is moved into it.
        lr: The first step size.
        base: What makes the step.
        decay: How the size falls over the planned steps.

    Raises:
        InvalidProblemError: A setting has no meaning; the message names it.
    """

    def __init__(
        self, setting: Setting, lr: float, base: BaseLike, decay: DecayLike
    ) -> None:
        """Build torch's own optimiser and scheduler."""
        lr = check_number("lr", lr, STEP, zero=True)
        problem = self._problem = setting.problem
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        self._lr = lr
        groups = [{"params": problem.parameters, "lr": lr}]
        self._optimizer = make_base(choose_base(base), groups)
        self._scheduler = schedule_lr(decay, self._optimizer, setting.steps)
        self._own = isinstance(base, str) and isinstance(decay, str)
        self._touched = False  # whether a step ever left the ball

    @property
    def size(self) -> float:
        """The size eta_k of the step that comes next."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def factor(self) -> float:
        """How far the size has decayed: ``eta_k / lr``."""
        return self.size / self._lr if self._lr > 0 else 1.0

    def take(self) -> None:
        """``x <- P_B(x - eta_k v)``; the next step has the next size."""
        problem = self._problem
        ball = problem.parameters, problem.radius, problem.center
        outside = step_in_ball_(self._optimizer, *ball, touched=self._touched)
        self._touched |= outside > 0
        self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of optimiser and scheduler."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "touched": self._touched,
        }

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        return Fields(
            {
                "optimizer": optimizer_state(self._optimizer, own=self._own),
                "scheduler": scheduler_state(self._scheduler),
                "touched": Flag(),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._scheduler.load_state_dict(state["scheduler"])
        self._touched = state["touched"]
