"""A way into the feasible set along a narrow valley: L-BFGS.

A residual of a differential equation, say, is steep in most directions and nearly flat
in those that lower it. Steps that know only gradients go from wall to wall; what the
gradients along them say about the curvature leads along the floor. What is lowered is
the sum of the squared violations, each in units of distance.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor
from torch.optim import LBFGS

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.vectors.arithmetic import combine, difference, norm

PAIRS = 25
"""Moves to remember at most, each with the change of the gradient along it."""
INSIDE = 0.1
"""How far inside to aim, as a share of the first violation: the square of one that
vanishes at the boundary is flat there, and steps come to an end before it."""
PATIENCE, LOWER = 15, 0.9
"""Looks in a row that do not lower the sum to this share before it is given up."""


def follow_valley(evaluator: Evaluator, *, looks: int, pairs: int = PAIRS) -> bool:
    """Go down from the best point; whether a feasible one was reached.

    Not for parameters on several devices, of which torch's L-BFGS takes one.

    Args:
        evaluator: Knows the best point, before and after.
        looks: How many full constraint gradients to use at most.
        pairs: How many moves to remember, two vectors each.

    Example:
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> disc = {"disc": function(lambda: w.square().sum()) <= 1.0}
        >>> evaluator = Evaluator([w], disc, differentiate_all=True)
        >>> follow_valley(evaluator, looks=100), evaluator.best.worst <= 0
        (True, True)
    """
    if len({part.device for part in evaluator.origin}) > 1:
        return False
    walk = _Walk(evaluator, evaluator.evaluations + looks)
    downhill = LBFGS(
        walk.moved,
        max_iter=looks,
        history_size=pairs,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    with suppress(_EndedError, NonFiniteError):
        downhill.step(walk.look)  # type: ignore[no-untyped-call]  # of torch
    return evaluator.best.worst <= 0


class _EndedError(Exception):
    """The way is at its end: feasible, out of looks, or no lower for too long."""


class _Walk:
    """The displacement from the start, as parameters of an optimiser."""

    def __init__(self, evaluator: Evaluator, last: int) -> None:
        self._evaluator, self._last, self._violation = (
            evaluator,
            last,
            _Violation(evaluator),
        )
        self.moved = difference(evaluator.best_point, evaluator.origin)
        self._seen: Evaluation | None = (
            evaluator.best
        )  # where it begins, and no look is needed
        self._goal, self._waited = torch.inf, 0

    def look(self) -> float:
        """The sum of the violations here, its gradient in ``moved``."""
        if self._seen is None and self._evaluator.evaluations >= self._last:
            raise _EndedError
        # A copy: the evaluator keeps what it is given, the optimiser changes its own.
        seen = self._seen or self._evaluator.move([part.clone() for part in self.moved])
        self._seen = None
        height, slope = self._violation(seen)
        for part, pull in zip(self.moved, slope, strict=True):
            part.grad = pull
        self._waited += 1
        if height <= self._goal:
            self._goal, self._waited = LOWER * height, 0
        if self._evaluator.best.worst <= 0 or self._waited >= PATIENCE:
            raise _EndedError
        return height


class _Violation:
    """``(1/2) sum_j max(0, c_j + aim_j)^2 / |grad c_j|^2``: aims and lengths stay."""

    def __init__(self, evaluator: Evaluator) -> None:
        best, margins = evaluator.best, evaluator.margins
        self._squares = {
            n: norm(pull) ** 2 or 1.0 for n, pull in best.gradients.items()
        }
        self._aims = {
            name: margins[name] + INSIDE * max(best.values[name], 0.0)
            for name in self._squares
        }

    def __call__(self, seen: Evaluation) -> tuple[float, list[Tensor]]:
        """The sum, and its gradient."""
        height, weights = 0.0, []
        for name, square in self._squares.items():
            over = max(seen.values[name] + self._aims[name], 0.0)
            height += 0.5 * over**2 / square
            weights.append(over / square)
        return height, combine(weights, [seen.gradients[n] for n in self._squares])
