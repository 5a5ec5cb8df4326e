"""What a search over cuts does where a look shows nothing, or nothing better."""

from __future__ import annotations

import math

from oneproj.projection.evaluator import Evaluation, Evaluator

SHARES = (1.0, 2**-1, 2**-2, 2**-4, 2**-8, 2**-16, 2**-32)
"""Of a step, one after the other until something can be seen there."""
STALLED = 3
"""Looks without progress after which rounding is in the way, and the margin grows."""
WIDER = 4.0
"""The factor by which it grows."""
BETTER = 0.9
"""The share of the least residual so far below which another is progress."""


class Exhaustion:
    """Counts the looks that change nothing but rounding.

    A look counts if what is violated is violated by rounding only, there or at the
    least violated point so far, and neither the worst residual nor, once a point is
    feasible, the distance is clearly lower than before. The next gain starts the count
    again. Looks at solutions over the cuts are compared with each other: a look
    elsewhere may be nearer to the boundary, and far from the answer.

    Args:
        evaluator: Of the search.
        start: Its first look.
    """

    def __init__(self, evaluator: Evaluator, start: Evaluation) -> None:
        """Count from the start of a search."""
        self._evaluator, self._lowest = evaluator, start
        self._residuals = {True: start.worst, False: start.worst}
        self._distance = math.inf
        self.looks = 0

    def note(self, seen: Evaluation, *, solution: bool = True) -> None:
        """Take a look into account, at a solution or elsewhere."""
        evaluator = self._evaluator
        self._lowest = min(self._lowest, seen, key=lambda look: look.worst)
        gains = 0 < seen.worst < BETTER * self._residuals[solution]
        if gains:
            self._residuals[solution] = seen.worst
        judged = self._lowest
        if evaluator.best.worst <= 0:
            gains = gains or evaluator.best_distance < self._distance * (
                1.0 - evaluator.share
            )
            self._distance = min(self._distance, evaluator.best_distance)
            judged = seen
        if gains:
            self.looks = 0
        elif evaluator.is_rounding(judged):
            self.looks += 1


class Stall:
    """Counts the looks since one was clearly less outside than all before it.

    Example:
        >>> stall = Stall()
        >>> [stall.note(worst) for worst in (2.0, 1.0, 0.95)], stall.waited
        ([True, True, False], 1)
    """

    def __init__(self, least: float = math.inf) -> None:
        """Begin with the least residual so far."""
        self.least, self.waited = least, 0

    def note(self, worst: float) -> bool:
        """Take the worst residual of a look; whether it is progress."""
        better = worst < BETTER * self.least
        self.waited = 0 if better else self.waited + 1
        self.least = min(self.least, worst)
        return better
