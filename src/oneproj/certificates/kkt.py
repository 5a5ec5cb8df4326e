"""The KKT residual and the multipliers at the point that the parameters hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oneproj.certificates.combination import shortest_combination
from oneproj.certificates.feasibility import ball_excess
from oneproj.certificates.points import (
    is_on_ball,
    outward,
    require_finite,
    rounding_unit,
)
from oneproj.errors import InvalidProblemError
from oneproj.parameters import Vector, norm
from oneproj.problem import Problem
from oneproj.results import Measure

ACTIVE_ROUNDINGS = 4.0
"""A constraint is active within this many square roots of the dtype's rounding."""


@dataclass(frozen=True)
class _Active:
    names: list[str]
    gradients: list[Vector]


def kkt_residual(problem: Problem, *, active_tolerance: float | None = None) -> Measure:
    """The KKT residual ``min_{mu >= 0} |grad f + sum_j mu_j grad c_j|`` at x.

    The sum runs over the active constraints, those with ``c_j(x) >= -tolerance``, and
    mu is the nonnegative least-squares solution: the best multipliers there are at x,
    whoever found x. It is zero exactly at a KKT point. For a nonsmooth objective it
    judges one subgradient and may stay large at a solution; the Moreau residual is the
    measure then.

    A point on the safeguard ball may be held by the ball and not by the constraints.
    The ball's normal then takes part, under its own name in ``details``, never among
    the constraints' multipliers.

    Args:
        problem: Evaluated at the point its parameters hold.
        active_tolerance: None takes ``4 sqrt(eps)`` of the parameters' dtype.

    Returns:
        A measure with the multipliers of all constraints, ``complementarity = sum_j
        mu_j |c_j|`` and the residual relative to ``|grad f|`` in its details.

    Raises:
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([0.6, 0.8], dtype=torch.float64, requires_grad=True)
        >>> target = torch.tensor([3.0, 4.0], dtype=torch.float64)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        ...     {"size": oneproj.function(lambda: w.norm()) <= 1.0})
        >>> measure = kkt_residual(problem)        # the nearest point of the ball
        >>> measure.value < 1e-12, round(measure.details["multipliers"]["size"], 9)
        (True, 4.0)
    """
    require_finite(problem.parameters)
    tolerance = _tolerance(problem, active_tolerance)
    residuals = problem.residuals()
    _, gradient = problem.objective.value_and_gradient(problem.parameters)
    active = _active(problem, residuals, tolerance)
    ball = _ball_normal(problem)
    found = shortest_combination([gradient], [*active.gradients, *ball])
    multipliers = dict.fromkeys(problem.constraints, 0.0)
    multipliers |= dict(zip(active.names, found.weights[1:], strict=False))
    slope = norm(gradient)
    return Measure(
        "KKT residual",
        found.norm,
        source="|grad f + sum_j mu_j grad c_j|",
        details={
            "relative": found.norm / slope if slope > 0 else 0.0,
            "multipliers": multipliers,
            "complementarity": math.fsum(
                mu * abs(residuals[name]) for name, mu in multipliers.items()
            ),
            "active": active.names,
            "active tolerance": tolerance,
            "the safeguard ball is active": bool(ball),
            "ball multiplier": found.weights[-1] if ball else 0.0,
            "objective gradients": 1,
            "constraint passes": len(residuals),
            "constraint gradients": len(active.names),
        },
    )


def complementarity(kkt: Measure) -> Measure:
    """The complementarity ``sum_j mu_j |c_j(x)|`` of a KKT measure, as its own row.

    Example:
        >>> kkt = Measure("KKT residual", 0.0, details={"complementarity": 2.0})
        >>> complementarity(kkt).value
        2.0
    """
    value = float(kkt.details["complementarity"])
    return Measure("complementarity", value, source="sum_j mu_j |c_j|")


def _tolerance(problem: Problem, given: float | None) -> float:
    if given is None:
        return ACTIVE_ROUNDINGS * math.sqrt(rounding_unit(problem.parameters))
    if given >= 0:  # false for NaN
        return given
    message = (
        f"active_tolerance must be >= 0, got {given}. A constraint counts as active "
        "where its residual is at least minus the tolerance."
    )
    raise InvalidProblemError(message)


def _active(problem: Problem, residuals: dict[str, float], tolerance: float) -> _Active:
    names = [name for name, c in residuals.items() if c >= -tolerance]
    terms = [problem.constraints[name] for name in names]
    gradients = [term.value_and_gradient(problem.parameters)[1] for term in terms]
    return _Active(names, list(gradients))


def _ball_normal(problem: Problem) -> list[Vector]:
    """The outward normal where the point lies on the ball; outside there is none."""
    point, eps = problem.parameters, rounding_unit(problem.parameters)
    on = is_on_ball(point, problem.radius, problem.center, eps)
    if not on or ball_excess(problem) > 0:
        return []
    return [outward(point, problem.center)[1]]
