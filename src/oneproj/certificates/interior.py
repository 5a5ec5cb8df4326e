"""A point at which every constraint holds with room to spare.

Under Assumption ass:convex there is one: where g = 0 its gradient is not, so g < 0
nearby.
"""

from __future__ import annotations

import math

from torch import Tensor

from oneproj.certificates.linearize import linearize, shifted
from oneproj.certificates.minorants import Evaluation
from oneproj.certificates.strongly_convex import Minimum, Task, minimise
from oneproj.errors import InfeasibleError
from oneproj.parameters import difference, dot, norm, rounding_unit
from oneproj.problem import Problem

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
    seen = _evaluate(problem, x, 0.0, x)
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
    task = Task.inside_ball(problem, x, w, lambda y: _evaluate(problem, y, w, x))
    return minimise(
        task, x, max_iterations=INTERIOR_ITERATIONS, enough=_deep, seed=False
    )


def _deep(upper: float, lower: float) -> bool:
    """Negative and half of what is possible; or nothing negative is possible."""
    return (upper < 0 and upper <= 0.5 * lower) or lower >= 0


def _evaluate(
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
