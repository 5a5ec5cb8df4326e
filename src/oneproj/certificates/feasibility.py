"""Feasibility: the worst residual, on all data."""

from __future__ import annotations

import math

from oneproj.parameters import norm, offset, rounding_unit
from oneproj.problem import Problem, check_in_float64, warn_if_signs_differ
from oneproj.results import Measure


def feasibility(problem: Problem) -> Measure:
    """The worst residual ``max_j c_j(x)`` on all data, to be compared with 0.

    Feasible means <= 0, not <= a tolerance: the value has no error to hide in. Without
    constraints it is -inf. Where the model computes in less than float64 the details
    have the residuals in float64 as well, or the reason why they could not be computed;
    if a sign differs, a warning names the constraint.

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
    # The model's own arithmetic comes last: what a function keeps is of its dtype.
    wide = check_in_float64(problem.parameters, problem.constraints)
    residuals = problem.residuals()
    warn_if_signs_differ(residuals, wide.residuals)
    worst = max(residuals, key=lambda name: residuals[name], default=None)
    return Measure(
        "feasibility",
        -math.inf if worst is None else residuals[worst],
        bound=0.0,
        source="all constraints on all data",
        details={
            "residuals": residuals,
            "worst constraint": worst,
            "distance outside the safeguard ball": ball_excess(problem),
            "residuals in float64": wide.residuals,
            "not checked in float64": wide.reasons,
            "constraint passes": len(residuals)
            + len(wide.residuals)
            + len(wide.reasons),
        },
    )


def ball_excess(problem: Problem) -> float:
    """How far the point lies outside the safeguard ball, beyond rounding; 0 inside.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> ball_excess(oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0))
        1.0
    """
    if math.isinf(problem.radius):
        return 0.0
    excess = norm(offset(problem.parameters, problem.center)) - problem.radius
    noise = 4.0 * math.sqrt(rounding_unit(problem.parameters)) * problem.radius
    return excess if excess > noise else 0.0


def ball_measure(problem: Problem) -> list[Measure]:
    """A row for the certificate of a point that is not in its ball; none otherwise.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0)
        >>> [measure.holds for measure in ball_measure(problem)]
        [False]
    """
    excess = ball_excess(problem)
    if excess == 0.0:
        return []
    return [
        Measure("safeguard ball", excess, bound=0.0, source="|x - center| - radius")
    ]
