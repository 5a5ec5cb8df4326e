"""A way into the feasible set along a narrow valley: L-BFGS.

A residual of a differential equation, say, is steep in most directions and nearly flat
in those that lower it. Steps that know only gradients go from wall to wall; what the
gradients along them say about the curvature leads along the floor. What is lowered is
the sum of the squared violations, each in units of distance.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.parameters import Vector, combine, difference, dot, norm
from oneproj.projection.view import Look, View

PAIRS = 25
"""Moves to remember at most, each with the change of the gradient along it."""
SUFFICIENT = 1e-4
"""The share of the predicted decrease that a step must deliver."""
SHORTENINGS, SHORTEST, SHORTER = 10, 0.1, 0.5
"""Lengths of a step that are tried at most, and the range of the next one's share."""
PATIENCE, LOWER = 30, 0.9
"""Looks in a row that do not lower the sum to this share before it is given up."""
CURVED = 1e-12
"""The least cosine of a move and the change of the gradient that is worth keeping."""


def follow_valley(view: View, *, looks: int, pairs: int = PAIRS) -> bool:
    """Go down from the best point; whether a feasible one was reached.

    Args:
        view: Knows the best point, before and after.
        looks: How many full constraint gradients to use at most.
        pairs: How many moves to remember, two vectors each.

    Example:
        >>> from oneproj.terms.functions import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> disc = {"disc": function(lambda: w.square().sum()) <= 1.0}
        >>> view = View([w], disc, differentiate_all=True)
        >>> follow_valley(view, looks=100), view.best.worst <= 0
        (True, True)
    """
    walk, last = _Walk(view, pairs), view.evaluations + looks
    goal, waited = LOWER * walk.height, 0
    while view.best.worst > 0 and view.evaluations < last and waited < PATIENCE:
        before = view.evaluations
        if not walk.step(most=last - before):
            break
        waited += view.evaluations - before
        if walk.height <= goal:
            goal, waited = LOWER * walk.height, 0
    return view.best.worst <= 0


class _Walk:
    """Where the way has come to, and what was learned on it."""

    def __init__(self, view: View, pairs: int) -> None:
        self._view, self._violation = view, _Violation(view)
        self._memory = _Memory(pairs)
        self._moved = difference(view.best_point, view.origin)
        self.height, self._slope = self._violation(view.best)

    def step(self, most: int) -> bool:
        """Go on by one step, shortened until it leads down; whether one did.

        Args:
            most: How many full constraint gradients to use.
        """
        step, share = self._memory.divide(self._slope), 1.0
        steepness = dot(self._slope, step)
        for _ in range(min(most, SHORTENINGS) if steepness > 0 else 0):
            there = combine([1.0, -share], [self._moved, step])
            try:
                height, slope = self._violation(self._view.move(there))
            except NonFiniteError:
                share *= SHORTEST
                continue
            if height <= self.height - SUFFICIENT * share * steepness:
                change = difference(slope, self._slope)
                self._memory.add(difference(there, self._moved), change)
                self._moved, self.height, self._slope = there, height, slope
                return True
            # The lowest point of the parabola through what is known.
            bent = height - self.height + share * steepness
            share *= min(max(0.5 * share * steepness / bent, SHORTEST), SHORTER)
        return False


class _Violation:
    """``(1/2) sum_j max(0, c_j)^2 / |grad c_j|^2``, with the lengths at the best point.

    For one linear constraint the first step along its gradient is the projection.
    """

    def __init__(self, view: View) -> None:
        self._margins = view.margins
        pulls = view.best.gradients.items()
        self._squares = {name: norm(pull) ** 2 or 1.0 for name, pull in pulls}

    def __call__(self, seen: Look) -> tuple[float, list[Tensor]]:
        """The sum, and its gradient."""
        height, weights = 0.0, []
        for name, square in self._squares.items():
            over = max(seen.values[name] + self._margins[name], 0.0)
            height += 0.5 * over**2 / square
            weights.append(over / square)
        return height, combine(weights, [seen.gradients[n] for n in self._squares])


class _Memory:
    """The inverse of the curvature, from the last moves: the two loops of L-BFGS."""

    def __init__(self, pairs: int) -> None:
        self._pairs: deque[tuple[list[Tensor], list[Tensor], float]]
        self._pairs = deque(maxlen=pairs)

    def add(self, move: list[Tensor], change: list[Tensor]) -> None:
        """Keep a move, unless the slope falls along it."""
        product = dot(move, change)
        if product > CURVED * norm(move) * norm(change):
            self._pairs.append((move, change, product))

    def divide(self, slope: Vector) -> list[Tensor]:
        """The step for which the estimate predicts this slope."""
        step, shares = combine([1.0], [slope]), []
        for move, change, product in reversed(self._pairs):
            shares.append(dot(move, step) / product)
            torch._foreach_add_(step, change, alpha=-shares[-1])
        if self._pairs:
            _, change, product = self._pairs[-1]
            torch._foreach_mul_(step, product / dot(change, change))
        for move, change, product in self._pairs:
            share = shares.pop() - dot(change, step) / product
            torch._foreach_add_(step, move, alpha=share)
        return step
