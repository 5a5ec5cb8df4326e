"""What a search over cuts does where a look shows nothing, or nothing better."""

from __future__ import annotations

import math

SHARES = (1.0, 2**-1, 2**-2, 2**-4, 2**-8, 2**-16, 2**-32)
"""Of a step, one after the other until something can be seen there."""
STALLED = 3
"""Looks without progress after which rounding is in the way, and the margin grows."""
WIDER = 4.0
"""The factor by which it grows."""
BETTER = 0.9
"""The share of the least residual so far below which another is progress."""


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
