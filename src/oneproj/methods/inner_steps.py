"""How many updates make an outer iteration, K, where nobody says."""

from __future__ import annotations

from oneproj.errors import InvalidProblemError, warn
from oneproj.methods.checks import check_inner_steps

INNER_STEPS = 10
"""K, unless the user says otherwise."""


def choose_inner_steps(inner_steps: int | None, steps: int) -> int:
    """K as asked for, or about 10 so that hardly an update is left over.

    Example:
        >>> choose_inner_steps(None, 500), choose_inner_steps(None, 484)
        (10, 11)
    """
    if inner_steps is None:
        if steps == 1:
            message = (
                "steps=1 is too few: the next centre is a mean of the iterates before "
                "each step, so the start itself is projected. Give 2 or more."
            )
            warn(message)
        # Not 1 where there is a choice: the centre would never move.
        middle = min(INNER_STEPS, max(2, steps // 2))
        near = range(min(steps, max(2, middle // 2)), middle + middle // 2 + 1)
        return min(near, key=lambda K: (steps % K, abs(K - middle)))
    inner_steps = check_inner_steps(inner_steps)
    if inner_steps == 1:
        message = (
            "inner_steps=1 would return the start: the next centre is the mean of the "
            "iterates before each step (line 14 of Algorithm 1), and with one of them "
            "that is the centre itself. Give 2 or more, or leave it out."
        )
        raise InvalidProblemError(message)
    if steps < inner_steps:
        message = (
            f"steps={steps} is less than inner_steps={inner_steps}: no outer iteration "
            "would complete and the start would be returned. Give more steps, or fewer "
            "inner_steps."
        )
        raise InvalidProblemError(message)
    if left := steps % inner_steps:
        message = (
            f"steps={steps} is not a multiple of inner_steps={inner_steps}: the last "
            f"{left} updates end inside an outer iteration and do not reach the answer."
        )
        warn(message)
    return inner_steps
