"""Why a run found no feasible point, where the reason is not the constraints.

A projection that fails knows residuals and a distance, and its advice is about bounds.
A term that is random or undefined, or a point that was trained to infinity, leads to
the same residuals, and no bound helps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from oneproj.errors import InfeasibleError
from oneproj.parameters import norm
from oneproj.problem import Problem
from oneproj.terms.constraints import Constraint

FAR = 1e6
"""A run that takes the parameters this many times as far from the origin as they were,
or as 1, diverges."""


@contextmanager
def explained(problem: Problem, start: float) -> Iterator[None]:
    """Put the reason first, if an ``InfeasibleError`` leaves the block and has one.

    Args:
        problem: Whose parameters hold what the updates made.
        start: How long they were before.

    Raises:
        NonFiniteError: In place of it, if a constraint is NaN or infinite by then.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> _ = w.data.mul_(1e9)
        >>> with explained(problem, start=1.0):
        ...     raise InfeasibleError("A residual is > 0.")
        Traceback (most recent call last):
        ...
        oneproj.errors.InfeasibleError: The updates took the parameters from a length...
    """
    try:
        yield
    except InfeasibleError as error:
        reason = _randomness(problem) or _divergence(problem, start)
        if not reason:
            raise
        message = f"{reason} {error}"
        raise InfeasibleError(message) from error


def _randomness(problem: Problem) -> str:
    """Which constraint gives two values at one point, if one does."""
    once, twice = problem.residuals(), problem.residuals()
    noise = math.sqrt(max(torch.finfo(p.dtype).eps for p in problem.parameters))
    for name, constraint in problem.constraints.items():
        bound = constraint.bound if isinstance(constraint, Constraint) else 0.0
        size = abs(once[name]) + abs(bound)
        if abs(once[name] - twice[name]) > noise * size:
            return (
                f"The constraint {name!r} is random: at one and the same point its "
                f"residual was {once[name]:.6g}, then {twice[name]:.6g}. No search can "
                "end by such values, and a looser bound need not help. Draw the noise "
                "once, before the run, and average the constraint over those draws; "
                "for dropout, pass oneproj.Problem(..., model=model)."
            )
    return ""


def _divergence(problem: Problem, start: float) -> str:
    """How far the updates went, if that is absurdly far."""
    length = norm(problem.parameters)
    if length <= FAR * max(1.0, start):
        return ""
    return (
        f"The updates took the parameters from a length of {start:.3g} to one of "
        f"{length:.3g}: they diverged, and there is little to be found out there. Try "
        "a smaller lr, or a finite radius of the problem, before anything below."
    )
