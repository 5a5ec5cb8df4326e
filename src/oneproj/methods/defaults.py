"""What ``"one-projection"`` chooses where nothing is given: the step size, and K."""

from __future__ import annotations

import math

from oneproj.errors import InvalidProblemError, warn
from oneproj.methods.checks import check_inner_steps
from oneproj.parameters import dimension
from oneproj.problem import Problem

INNER_STEPS = 10
"""K, unless the user says otherwise."""
LR, FEW_PARAMETERS = 0.1, 1000
"""The step unless the user says otherwise, and up to how many parameters."""


def default_lr(problem: Problem) -> float:
    """``0.1 / sqrt(n / 1000)`` for n > 1000 parameters, 0.1 for fewer.

    A step of Adam changes every parameter by about lr, so a score that adds up n of
    them changes by n times that, while they are of the size 1 / sqrt(n) that
    initialisations give them. The rule yields what is common: 0.01 for 10^5 parameters,
    0.001 for 10^7.

    Example:
        >>> import oneproj, torch
        >>> w = torch.zeros(100_000, requires_grad=True)
        >>> round(default_lr(oneproj.Problem(w, oneproj.function(w.sum), {})), 6)
        0.01
    """
    n = dimension(problem.parameters)
    return LR * min(1.0, math.sqrt(FEW_PARAMETERS / n))


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
    check_inner_steps(inner_steps)
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
