"""Runs in a few numbers: means, sample standard deviations, and ratios of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A mean over runs with its sample standard deviation.

    Example:
        >>> Spread(mean=10.0, sd=None, runs=1).text(2)
        '10.00'
    """

    mean: float
    sd: float | None
    """None for a single run: one number has no spread."""
    runs: int

    def text(self, digits: int) -> str:
        """Mean and standard deviation with this many decimals."""
        if self.sd is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} \N{PLUS-MINUS SIGN} {self.sd:.{digits}f}"


def spread(values: Sequence[float]) -> Spread:
    """The mean and the sample standard deviation (n - 1) of at least one value.

    A value that is not finite makes both NaN: it is shown, not dropped.

    Example:
        >>> spread([1.0, 2.0, 3.0])
        Spread(mean=2.0, sd=1.0, runs=3)
    """
    n = len(values)
    if not all(math.isfinite(value) for value in values):
        return Spread(math.nan, math.nan if n > 1 else None, n)
    mean = math.fsum(values) / n
    if n == 1:
        return Spread(mean, None, 1)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(mean, math.sqrt(squares / (n - 1)), n)


def speedup(slow: Spread, fast: Spread) -> float:
    """How many times faster: the ratio of the means, as the paper computes it.

    The mean of the per-seed ratios would be another number.

    Example:
        >>> speedup(spread([60.0, 80.0]), spread([10.0]))
        7.0
    """
    return slow.mean / fast.mean if fast.mean else math.inf
