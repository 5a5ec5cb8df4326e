"""Feasibility: the worst residual, on all data."""

from __future__ import annotations

import math

from oneproj.certificates.points import outward
from oneproj.problem import Problem
from oneproj.results import Measure


def feasibility(problem: Problem) -> Measure:
    """The worst residual ``max_j c_j(x)`` on all data, to be compared with 0.

    Feasible means <= 0, not <= a tolerance: the value has no error to hide in. Without
    constraints it is -inf.

    Raises:
        NonFiniteError: A constraint's value is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w.sum()),
        ...     {"size": oneproj.function(lambda: w.norm()) <= 5.0})
        >>> measure = feasibility(problem)
        >>> measure.value, measure.holds, measure.details["worst constraint"]
        (0.0, True, 'size')
    """
    residuals = problem.residuals()
    worst = max(residuals, key=lambda name: residuals[name], default=None)
    outside = outward(problem.parameters, problem.center)[0] - problem.radius
    return Measure(
        "feasibility",
        -math.inf if worst is None else residuals[worst],
        bound=0.0,
        source="all constraints on all data",
        details={
            "residuals": residuals,
            "worst constraint": worst,
            "distance outside the safeguard ball": max(0.0, outside),
            "constraint passes": len(residuals),
        },
    )
