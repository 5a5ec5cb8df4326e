"""What the baselines share: their step, and which iterate they return.

The step is ``x <- P_B(x - eta_k v)``, with the gradient v in ``.grad``.

With ``base="sgd"`` it is the stochastic subgradient step that their theorems are about;
momentum and Adam are available as in Algorithm 1, so that a comparison need not be one
of base steps. With eta_k falling linearly to zero the last iterate of a convex
problem is as good as an average, O(1 / sqrt(N)) without a logarithm (Zamani and
Glineur, Exact convergence rate of the last iterate in subgradient methods; Defazio,
Cutkosky, Mehta and Mishchenko, Optimal linear decay learning rate schedules and further
refinements, for stochastic gradients).

The answer is the last iterate, the average of the iterates, or a random one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch

from oneproj.arguments import check_number
from oneproj.errors import InvalidProblemError
from oneproj.methods.base import Context
from oneproj.methods.base_steps import (
    BaseLike,
    DecayLike,
    choose_base,
    schedule_lr,
    step_in_ball_,
)
from oneproj.methods.checks import STEP, make_base, move_start_into_ball
from oneproj.schema import Resumable
from oneproj.vectors.arithmetic import Vector, assign, snapshot


class BallStep(Resumable):
    """Steps of ``torch.optim``, back into the ball, with sizes that may decay.

    Args:
        context: Of the run; a start outside the ball is moved into it.
        lr: The first step size.
        base: What makes the step.
        decay: How the size falls over the planned steps.

    Raises:
        InvalidProblemError: A setting has no meaning; the message names it.
    """

    STATE = ("_optimizer", "_scheduler", "_touched")

    def __init__(
        self, context: Context, lr: float, base: BaseLike, decay: DecayLike
    ) -> None:
        """Build torch's own optimiser and scheduler."""
        lr = check_number("lr", lr, STEP, zero=True)
        problem = self._problem = context.problem
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        self._lr = lr
        groups = [{"params": problem.parameters, "lr": lr}]
        self._optimizer = make_base(choose_base(base, context.defaults), groups)
        self._scheduler = schedule_lr(
            decay, self._optimizer, context.steps, context.defaults
        )
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


Rule = Literal["last", "average", "random"]
RULES: tuple[Rule, ...] = get_args(Rule)


class Answer(Resumable):
    """One copy of the parameters, kept up to date as iterates are offered.

    - ``"last"``: the last one offered.
    - ``"average"``: ``sum_k a_k x_k / sum_k a_k`` with the weights a_k of the offers.
    - ``"random"``: x_k with probability ``a_k / sum_i a_i``. How many offers will come
      need not be known: the k-th replaces what is kept with probability
      ``a_k / (a_1 + ... + a_k)`` (reservoir sampling).

    Args:
        parameters: Hold the iterate whenever one is offered.
        rule: Which to keep.
        generator: Draws, for ``"random"``.
        rules: Those that the method has a use for.

    Raises:
        InvalidProblemError: The rule is none of them.

    Example:
        >>> w = torch.tensor([1.0])
        >>> answer = Answer([w], "average", torch.Generator())
        >>> answer.offer(1.0); _ = w.fill_(4.0); answer.offer(2.0); _ = w.zero_()
        >>> answer.show(); w.item()                     # (1 * 1 + 2 * 4) / 3
        3.0
    """

    STATE = ("_kept", "_total")

    def __init__(
        self,
        parameters: Vector,
        rule: Rule,
        generator: torch.Generator,
        *,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        """Nothing is kept before the first offer."""
        if rule not in rules:
            known = ", ".join(map(repr, rules))
            message = f"select must be one of {known}, got {rule!r}."
            raise InvalidProblemError(message)
        self._parameters, self._rule, self._generator = parameters, rule, generator
        self._kept: list[torch.Tensor] = []
        self._total = 0.0

    @torch.no_grad()
    def offer(self, weight: float = 1.0) -> None:
        """Offer the iterate that the parameters hold now."""
        self._total += weight
        if not self._kept:
            self._kept = snapshot(self._parameters)
            return
        share = weight / self._total if self._total > 0 else 0.0
        if self._rule == "average":
            torch._foreach_lerp_(self._kept, list(self._parameters), share)
        elif self._rule == "last" or self._draw() < share:
            assign(self._kept, self._parameters)

    def show(self) -> None:
        """Make the parameters hold the answer; they stay if nothing was offered."""
        if self._kept:
            assign(self._parameters, self._kept)

    def _draw(self) -> float:
        return float(
            torch.rand((), generator=self._generator, dtype=torch.float64, device="cpu")
        )
