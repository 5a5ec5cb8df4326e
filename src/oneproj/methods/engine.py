"""The engine of a penalty: estimates, anchors and strengths.

``solve`` and ``AutoPenalty`` have one each. They differ in who makes the steps, and in
how the gradient of the objective is known: ``solve`` takes it by itself, in a loop of
the user's own it is what the step finds, less the penalty's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneproj.methods.strength import AutoStrength, limited_push
from oneproj.oracles.anchor import Anchor
from oneproj.oracles.base import AbstractOracle
from oneproj.schema import Resumable


class PenaltyEngine(Resumable):
    """Takes anchors at centres, and keeps the strengths of the penalty up to date.

    Args:
        oracle: Estimates the constraints, and has the penalty in force.
        strength: Finds the strengths; None where the oracle's penalty is given.
        every: Centres per anchor.

    Example:
        >>> import oneproj, torch
        >>> from oneproj.problem.problem import Constrained
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> size = oneproj.function(lambda: w.square().sum())
        >>> oracle = oneproj.oracles.ORACLES["anchored"](
        ...     Constrained(w, {"size": size <= 1.0}), None, batch_size=1,
        ...     generator=torch.Generator(), counts=oneproj.Counts())
        >>> engine = PenaltyEngine(oracle, AutoStrength(oneproj.Defaults()))
        >>> anchor = engine.at_center()
        >>> engine.strength.watch([torch.tensor([-6.0])])  # f falls at rate 6
        >>> engine.adapt(anchor)                           # and c rises at rate 4
        >>> engine.strength.penalty.strengths              # twice the multiplier
        (3.0,)
    """

    STATE = ("oracle", "strength", "_centers")

    def __init__(
        self, oracle: AbstractOracle, strength: AutoStrength | None, *, every: int = 1
    ) -> None:
        """Begin before the first centre."""
        self.oracle, self.strength, self._every = oracle, strength, every
        self._centers = 0

    def at_center(self) -> Anchor | None:
        """Take an anchor if it is this centre's turn; None if none is taken."""
        turn = self._centers % self._every == 0
        self._centers += 1
        if turn and (self.strength is not None or self.oracle.uses_anchors):
            return self.oracle.anchor()
        return None

    def adapt(self, anchor: Anchor) -> None:
        """Let the strengths follow the multipliers at an anchor."""
        if self.strength is not None and self.strength.has_seen:
            self.oracle.penalize(self.strength.adapt(anchor))

    def add_penalty(self) -> dict[str, float]:
        """Add the penalty's gradient to ``.grad``; return the estimated residuals.

        Where strengths are in doubt, within a limit.
        """
        most = None if self.strength is None else self.strength.most_push
        if most is None:
            return self.oracle.add_penalty()
        with limited_push(self.oracle.problem.parameters, most):
            return self.oracle.add_penalty()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state, with the penalty that was in force."""
        super().load_state_dict(state)
        if self.strength is not None and self.strength.penalty.strengths:
            self.oracle.penalize(self.strength.penalty)
