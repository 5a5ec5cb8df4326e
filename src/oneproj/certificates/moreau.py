"""The Moreau residual: how far a constrained proximal step moves the point."""

from __future__ import annotations

import math

from torch import Tensor

from oneproj.arguments import check_number
from oneproj.certificates.interior import find_interior
from oneproj.certificates.linearize import linearize, shifted
from oneproj.certificates.minorants import Evaluation
from oneproj.certificates.points import borrowed, is_on_ball, like
from oneproj.certificates.strongly_convex import (
    MAX_ITERATIONS,
    OBJECTIVE,
    Minimum,
    Task,
    minimise,
)
from oneproj.parameters import difference, distance, rounding_unit
from oneproj.problem import Problem
from oneproj.results import Measure


def moreau_residual(
    problem: Problem, *, weak_convexity: float, max_iterations: int = MAX_ITERATIONS
) -> Measure:
    """The Moreau residual S_ell(x) at the point that the parameters hold.

    ``S_ell(x) = 2 ell |x - Q_ell(x)|`` with the proximal point
    ``Q_ell(x) = argmin { f(y) + ell |y - x|^2 : y feasible }``, eq. moreau-measure. The
    objective may be nonsmooth but is ell-weakly convex, the constraints are convex.

    **Guarantee.** ``Measure.error`` bounds the distance of the value from the exact one
    (see ``strongly_convex``). The proximal point y is feasible, ``S / (2 ell)`` away,
    and ``dist(0, subdifferential f(y) + N_C(y)) <= S`` (eq. moreau-intuition). Where an
    evaluation shows a claim to be false, the error is inf and ``details["violation"]``
    names the claim.

    Args:
        problem: Its parameters are moved to look around, and restored bit for bit.
        weak_convexity: ell > 0 such that ``f + (ell/2)|x|^2`` is convex.
        max_iterations: Steps of the cutting model.

    Raises:
        InfeasibleError: The feasible set is empty or has no interior.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: (w - 3.0).abs().sum()),
        ...     {"cap": oneproj.function(lambda: w.sum()) <= 0.25}, radius=1.0)
        >>> measure = moreau_residual(problem, weak_convexity=1.0)
        >>> round(measure.value, 6), measure.details["proximal point"][0].tolist()
        (0.5, [0.25])
    """
    why = "It is ell; for a convex objective any positive number will do."
    ell = check_number("weak_convexity", weak_convexity, why)
    with borrowed(problem.parameters) as x:
        task = Task.inside_ball(
            problem, x, ell, lambda y: _evaluate(problem, y, ell, x)
        )
        anchor, used = (x, 0)
        if problem.constraints:
            anchor, used = find_interior(problem, x)
        found = minimise(task, anchor, max_iterations=max_iterations)
    return _measure(problem, ell, x, found, used)


def _evaluate(
    problem: Problem, y: list[Tensor], ell: float, x: list[Tensor]
) -> Evaluation:
    """``f(y) + ell |y - x|^2`` and the constraints; the parameters hold y."""
    z = problem.parameters
    piece = linearize(problem.objective, z, OBJECTIVE)
    return Evaluation(
        y,
        [shifted(piece, 2.0 * ell, difference(y, x))],
        [linearize(c, z, name) for name, c in problem.constraints.items()],
    )


def _measure(
    problem: Problem, ell: float, x: list[Tensor], found: Minimum, used: int
) -> Measure:
    y, count = found.best.point, found.evaluations
    details = {
        "proximal point": like(y, problem.parameters),
        "multipliers": {n: found.weights.get(n, 0.0) for n in problem.constraints},
        "the safeguard ball is active": is_on_ball(
            y, problem.radius, problem.center, rounding_unit(problem.parameters)
        ),
        "worst residual of the proximal point": found.best.worst,
        "objective gradients": count,
        "constraint gradients": (count + used) * len(problem.constraints),
    }
    error = 2.0 * ell * found.error
    if found.broken is not None:
        error = math.inf
        details["violation"] = _violation(found.broken, ell)
    return Measure(
        "Moreau residual",
        2.0 * ell * distance(x, y),
        source="eq. moreau-measure",
        error=error,
        details=details,
    )


def _violation(label: str, ell: float) -> str:
    if label == OBJECTIVE:
        return f"the objective is not weakly convex with weak_convexity = {ell}"
    return f"the constraint {label!r} is not convex"
