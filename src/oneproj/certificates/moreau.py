"""A point at which every constraint holds with room to spare.

Under Assumption ass:convex there is one: where g = 0 its gradient is not, so g < 0
nearby.

The Moreau residual: how far a constrained proximal step moves the point.
"""

from __future__ import annotations

import math

from torch import Tensor

from oneproj.arguments import check_number
from oneproj.certificates.feasibility import borrowed, is_on_ball, like
from oneproj.certificates.strongly_convex import (
    MAX_ITERATIONS,
    OBJECTIVE,
    Minimum,
    Task,
    minimise,
)
from oneproj.certificates.subproblem import Evaluation, linearize, shifted
from oneproj.errors import InfeasibleError
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.vectors.arithmetic import difference, distance, dot, norm, rounding_unit

WEIGHTS = (1e-1, 1e-3, 1e-5)
"""Proximal weights that are tried, in units of slope over travel: from near to far."""
INTERIOR_ITERATIONS = 100


def find_interior(problem: Problem, x: list[Tensor]) -> tuple[list[Tensor], int]:
    """Find a point of the ball with ``g_max < 0``; return it and the evaluations used.

    Minimises ``g_max(y) + (w/2)|y - x|^2`` for a small w until the value is negative
    and at least half as deep as the lower bound; rounding does not count as room. The
    caller restores the parameters.

    Raises:
        InfeasibleError: There is no such point, or none was found.
    """
    eps = rounding_unit(problem.parameters)
    seen = _evaluate_there(problem, x, 0.0, x)
    steepest = max(norm(piece.gradient) for piece in seen.pieces)
    travel = problem.radius if math.isfinite(problem.radius) else 1.0 + norm(x)
    used, smallest = 1, seen.value
    for weight in WEIGHTS:
        w = weight * (steepest or 1.0) / travel
        found = _search(problem, x, w)
        used += found.evaluations
        g = found.best.value - 0.5 * w * _square(found.best.point, x)
        if g < -4 * eps * max(piece.size for piece in found.best.pieces):
            return found.best.point, used
        smallest = min(smallest, g)
    message = (
        "No point with every constraint < 0 was found inside the safeguard ball: the "
        f"smallest worst residual seen is {smallest:.3e}. The proximal point is only "
        "computed for a feasible set with an interior, which it has if the gradient of "
        "g does not vanish where g = 0. Try: (a) a looser bound, (b) a larger radius, "
        "(c) in place of an equality written as two inequalities, a parametrisation "
        "that satisfies it."
    )
    raise InfeasibleError(message)


def _search(problem: Problem, x: list[Tensor], w: float) -> Minimum:
    task = Task.inside_ball(problem, x, w, lambda y: _evaluate_there(problem, y, w, x))
    return minimise(
        task, x, max_iterations=INTERIOR_ITERATIONS, enough=_deep, seed=False
    )


def _deep(upper: float, lower: float) -> bool:
    """Negative and half of what is possible; or nothing negative is possible."""
    return (upper < 0 and upper <= 0.5 * lower) or lower >= 0


def _evaluate_there(
    problem: Problem, y: list[Tensor], w: float, x: list[Tensor]
) -> Evaluation:
    """The pieces ``c_j(y) + (w/2)|y - x|^2`` of the worst residual."""
    offset = difference(y, x)
    return Evaluation(
        y,
        [
            shifted(linearize(constraint, problem.parameters, name), w, offset)
            for name, constraint in problem.constraints.items()
        ],
    )


def _square(a: list[Tensor], b: list[Tensor]) -> float:
    offset = difference(a, b)
    return dot(offset, offset)


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
