"""From an inequality to a count: T and K as whole numbers.

Implements the two choices of the paper's appendices app:convex-schedule and
app:nc-schedule: T is a ceiling, K any number that satisfies a scalar inequality.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

from oneproj.errors import InvalidScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable

InnerSteps = Literal["doubling", "smallest"]

# Beyond this a double holds neither the count nor its inverse.
_MOST_STEPS = 2.0**1000


def find_outer_steps(scale: float, epsilon: float) -> int:
    """Return T = max(2, ceil(scale / epsilon^2)).

    Example:
        >>> find_outer_steps(3.0, epsilon=0.5), find_outer_steps(0.0, epsilon=0.5)
        (12, 2)
    """
    square = epsilon * epsilon
    if not (square > 0.0 and scale / square <= _MOST_STEPS):
        raise InvalidScheduleError(_beyond_doubles("T", f"{scale} / {epsilon}^2"))
    return max(2, math.ceil(scale / square))


def find_inner_steps(
    error: Callable[[int], float], target: float, how: InnerSteps = "doubling"
) -> int:
    """Return a K >= 2 with error(K) <= target, for an error that decreases in K.

    "doubling" returns the first K of 2, 4, 8, ...; "smallest" then bisects between it
    and the half that failed. Both inner errors, U_K and e_K, decrease strictly for all
    K > 0 (see `bounds.inner_bound`), so the bisection finds the smallest K; where
    rounding hides the decrease (K above about 1e15), it finds a K that passes and
    whose predecessor fails.

    Example:
        >>> find_inner_steps(lambda K: 1 / K, 0.01)
        128
        >>> find_inner_steps(lambda K: 1 / K, 0.01, "smallest")
        100
    """
    if how not in get_args(InnerSteps):
        message = (
            f"inner_steps must be 'doubling' or 'smallest', got {how!r}.\n"
            "Both satisfy the theorem; 'smallest' needs up to half the steps."
        )
        raise InvalidScheduleError(message)
    passes = 2
    while not error(passes) <= target:
        passes *= 2
        if passes > _MOST_STEPS:
            raise InvalidScheduleError(_beyond_doubles("K", f"e_K <= {target}"))
    if how == "doubling" or passes == 2:  # noqa: PLR2004 - the least K allowed
        return passes
    fails = passes // 2
    while passes - fails > 1:
        middle = (passes + fails) // 2
        if error(middle) <= target:
            passes = middle
        else:
            fails = middle
    return passes


def _beyond_doubles(symbol: str, condition: str) -> str:
    """Say that the theorem holds but its numbers cannot be represented."""
    return (
        f"{symbol} <= {_MOST_STEPS:.0e} fails: {symbol} follows from {condition}.\n"
        "The theorem holds, but no double can hold its number of steps. Try: a larger "
        "epsilon, and constants in other units."
    )
