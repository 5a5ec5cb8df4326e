"""The Moreau residual: how far a constrained proximal step moves the point."""

from __future__ import annotations

import math

from torch import Tensor

from oneproj.arguments import check_number
from oneproj.certificates.feasibility import borrowed, is_on_ball, like
from oneproj.certificates.strongly_convex import (
    OBJECTIVE,
    Cut,
    Linearization,
    minimise,
)
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.errors import InfeasibleError
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.vectors.arithmetic import difference, distance, norm, rounding_unit


def moreau_residual(
    problem: Problem, *, weak_convexity: float, max_iterations: int = TOL.max_iterations
) -> Measure:
    """Return the Moreau residual S_ell(x) at the point that the parameters hold.

    ``S_ell(x) = 2 ell |x - Q_ell(x)|`` with the proximal point
    ``Q_ell(x) = argmin { f(y) + ell |y - x|^2 : y feasible }``, eq. moreau-measure. The
    objective may be nonsmooth but is ell-weakly convex, the constraints are convex.
    Theorem thm:convex-nonsmooth bounds it by epsilon at the output of a run.

    **Guarantee.** ``Measure.error`` bounds the distance of the value from the exact one
    (see ``strongly_convex``). The proximal point y is feasible, ``S / (2 ell)`` away,
    and ``dist(0, subdifferential f(y) + N_C(y)) <= S`` (eq. moreau-intuition). Where an
    evaluation shows a claim to be false, the error is inf and ``details["violation"]``
    names the claim.

    **Cost.** A gradient of the objective and of every constraint per evaluation: tens
    for a smooth problem of few parameters, up to about a thousand otherwise.

    Args:
        problem: Its parameters are moved, and restored bit for bit.
        weak_convexity: ell > 0 such that ``f + (ell/2)|x|^2`` is convex.
        max_iterations: Steps of the cutting-plane method.

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
    ell, z = check_number("weak_convexity", weak_convexity, why), problem.parameters

    def linearize(y: list[Tensor]) -> Linearization:
        """Linearize ``f(y) + ell |y - x|^2`` and the constraints at y."""
        piece = Cut.of(problem.objective, z, OBJECTIVE)
        moved = piece.plus_square(2.0 * ell, difference(y, x))
        return Linearization(y, [moved], _residuals(problem))

    with borrowed(z) as x:
        anchor, used = find_interior(problem, x) if problem.constraints else (x, 0)
        found = minimise(
            problem, linearize, ell, anchor, origin=x, max_iterations=max_iterations
        )
    y, count, error = found.best.point, found.evaluations, 2.0 * ell * found.error
    details = {
        "proximal point": like(y, z),
        "multipliers": {n: found.weights.get(n, 0.0) for n in problem.constraints},
        "the safeguard ball is active": is_on_ball(problem, y),
        "worst residual of the proximal point": found.best.worst,
        "objective gradients": count,
        "constraint gradients": (count + used) * len(problem.constraints),
    }
    if found.refuted is not None:
        error = math.inf
        details["violation"] = (
            f"the objective is not weakly convex with weak_convexity = {ell}"
            if found.refuted == OBJECTIVE
            else f"the constraint {found.refuted!r} is not convex"
        )
    value, source = 2.0 * ell * distance(x, y), "eq. moreau-measure"
    return Measure(
        "Moreau residual", value, source=source, error=error, details=details
    )


def find_interior(problem: Problem, x: list[Tensor]) -> tuple[list[Tensor], int]:
    """Return a point of the ball with every constraint < 0, and the evaluations used.

    Assumption ass:convex implies that there is one: where g = 0 its gradient is not 0,
    so g < 0 nearby. The search minimises ``max_j c_j(y) + (w/2)|y - x|^2`` for a small
    w until the value is negative and at least half as deep as the lower bound. The
    caller restores the parameters.

    Raises:
        InfeasibleError: There is no such point, or none was found.
    """
    cuts = _residuals(problem)
    steepest = max(norm(cut.gradient) for cut in cuts)
    travel = problem.radius if math.isfinite(problem.radius) else 1.0 + norm(x)
    used, smallest = 1, max(cut.value for cut in cuts)
    for weight in TOL.interior_weights:
        w = weight * (steepest or 1.0) / travel

        def linearize(y: list[Tensor], w: float = w) -> Linearization:
            offset = difference(y, x)
            return Linearization(
                y, [cut.plus_square(w, offset) for cut in _residuals(problem)]
            )

        found = minimise(
            problem,
            linearize,
            w,
            x,
            origin=x,
            max_iterations=TOL.interior_iterations,
            enough=_is_deep,
        )
        used += found.evaluations
        g = found.best.value - 0.5 * w * distance(found.best.point, x) ** 2
        size = max(piece.size for piece in found.best.pieces)
        if g < -4 * rounding_unit(problem.parameters) * size:
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


def _is_deep(upper: float, lower: float) -> bool:
    """Return whether a bound is negative and half of what is possible, or none is."""
    return (upper < 0 and upper <= 0.5 * lower) or lower >= 0


def _residuals(problem: Problem) -> list[Cut]:
    """Linearize the constraints at the point that the parameters hold."""
    z = problem.parameters
    return [Cut.of(c, z, name) for name, c in problem.constraints.items()]
