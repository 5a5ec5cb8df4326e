"""The residuals of proximal steps: how far such a step moves the point.

The Moreau residual belongs to a constrained step (convex constraints), the penalty
residual, with the witness of Theorem thm:nonconvex, to a penalised one.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from oneproj.arguments import check_number
from oneproj.certificates.assumptions import Explorer
from oneproj.certificates.kkt import borrowed, is_on_ball, like, outward
from oneproj.certificates.strongly_convex import (
    BALL,
    OBJECTIVE,
    Cut,
    Linearization,
    Minimum,
    minimise,
)
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.errors import InfeasibleError
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.theory import NonconvexConstants
from oneproj.vectors.arithmetic import (
    assign,
    combine,
    difference,
    distance,
    norm,
    rounding_unit,
)


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
    y, count = found.best.point, found.evaluations
    details = {
        "proximal point": like(y, z),
        "multipliers": {n: found.weights.get(n, 0.0) for n in problem.constraints},
        "the safeguard ball is active": is_on_ball(problem, y),
        "worst residual of the proximal point": found.best.worst,
        "objective gradients": count,
        "constraint gradients": (count + used) * len(problem.constraints),
    }
    if found.refuted is not None:
        details["violation"] = (
            f"the objective is not weakly convex with weak_convexity = {ell}"
            if found.refuted == OBJECTIVE
            else f"the constraint {found.refuted!r} is not convex"
        )
    value, error = _proximal_step(2.0 * ell, x, found)
    source = "eq. moreau-measure"
    return Measure(
        "Moreau residual", value, source=source, error=error, details=details
    )


def _proximal_step(
    weight: float, x: list[Tensor], found: Minimum
) -> tuple[float, float]:
    """Return ``weight |x - Q(x)|`` and its error, inf if a claim is refuted."""
    error = weight * found.error if found.refuted is None else math.inf
    return weight * distance(x, found.best.point), error


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


def penalty_residual(
    problem: Problem,
    constants: NonconvexConstants,
    *,
    strength: float,
    prox_weight: float,
    max_iterations: int = TOL.max_iterations,
) -> Measure:
    """Return the penalty residual R(x) at the point that the parameters hold.

    ``R(x) = beta |x - Q(x)|`` with ``Q(x) = argmin { f(y) + lambda [g(y)]_+ +
    (beta/2)|y - x|^2 : y in the ball }``, eq. nc-residual; g is the worst residual.
    Theorem thm:nonconvex bounds it by epsilon at x_J, before the projection.

    **Guarantee.** ``Measure.error`` bounds the distance of the value from the exact one
    (see ``strongly_convex``). ``details`` holds the witness of lem:nc-transfer: the
    point y, multipliers mu_j >= 0 with sum <= lambda, and v, with ``v + sum_j mu_j grad
    c_j(y) + n = beta (x - y)`` and n normal to the ball at y (0 inside). For a smooth
    objective v is its gradient at y, to the distance reported. If R is below ``h_feas``
    the lemma makes y feasible and n = 0; below ``beta sigma_bd / L_g`` the projection
    of x is unique. Both are decided at the far end of the error. A residual below
    ``h_feas`` with an infeasible y proves that the claims are false, and
    ``details["violation"]`` says so.

    **Cost.** A gradient of the objective and of every constraint per evaluation: tens
    for a problem of few parameters, up to some hundreds otherwise.

    Args:
        problem: Its parameters are moved, and restored bit for bit.
        constants: The claims about f and g, in the problem's coordinates.
        strength: lambda.
        prox_weight: beta, larger than ``ell + lambda L_g``.
        max_iterations: Steps of the cutting-plane method.

    Raises:
        InvalidScheduleError: ``beta <= ell + lambda L_g``: Q is not defined.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w.sum()),
        ...     {"disc": oneproj.function(lambda: w.square().sum()) <= 0.25},
        ...     radius=1.0)
        >>> claims = oneproj.theory.NonconvexConstants(
        ...     weak_convexity=0.1, gradient_bound=1.0, constraint_gradient_bound=2.0,
        ...     constraint_smoothness=2.0, boundary_slope=1.0, infeasible_slope=1.0)
        >>> measure = penalty_residual(problem, claims, strength=2.0, prox_weight=5.0)
        >>> round(measure.value, 6), measure.details["the witness is feasible"]
        (1.0, True)
    """
    lam, beta = strength, prox_weight
    m = constants.strong_convexity(lam, beta)

    def linearize(y: list[Tensor]) -> Linearization:
        """Linearize ``f + lambda max(0, c_1, ..., c_m) + (beta/2)|y - x|^2``.

        Each piece is as weakly convex as the whole, so each is a cut of its own.
        """
        f, *cuts = _linearize(problem)
        base = f.plus_square(beta, difference(y, x))
        pieces = [base]
        for c in cuts:
            gradient = combine([1.0, lam], [base.gradient, c.gradient])
            value, size = base.value + lam * c.value, base.size + lam * c.size
            pieces.append(Cut(value, gradient, c.label, size))
        return Linearization(y, pieces)

    with borrowed(problem.parameters) as x:
        found = minimise(
            problem, linearize, m, x, origin=x, max_iterations=max_iterations
        )
        details = _witness(problem, constants, (lam, beta), x, found)
        r, error = _proximal_step(beta, x, found)
        far = r + error
        h, tube = constants.feasibility_margin(lam), beta * constants.tube_radius
        details |= {
            "h_feas": h,
            "r < h_feas": far < h,
            "beta R": tube,
            "r < beta R": far < tube,
            "distance of the projection from the witness": 2.0 * far / beta,
        }
        if far < h and not details["the witness is feasible"]:
            details["violation"] = _refutation(problem, constants, found)
    if found.refuted is not None:
        details["violation"] = (
            "f + lambda [g]_+ is not weakly convex with ell + lambda L_g = "
            f"{constants.penalized_weak_convexity(lam)}"
        )
    return Measure(
        "penalty residual", r, source="eq. nc-residual", error=error, details=details
    )


def _linearize(problem: Problem) -> list[Cut]:
    """Linearize the objective and the constraints where the parameters are."""
    terms = {OBJECTIVE: problem.objective, **problem.constraints}
    return [Cut.of(term, problem.parameters, name) for name, term in terms.items()]


def _witness(
    problem: Problem,
    constants: NonconvexConstants,
    weights: tuple[float, float],
    x: list[Tensor],
    found: Minimum,
) -> dict[str, Any]:
    """Return the triple (y, v, mu) and what it satisfies."""
    (lam, beta), y, z = weights, found.best.point, problem.parameters
    assign(z, y)
    f, *cuts = _linearize(problem)
    mu = {cut.label: lam * found.weights.get(cut.label, 0.0) for cut in cuts}
    normal, ball = outward(y, problem.center)[1], found.weights.get(BALL, 0.0)
    v = combine(
        [beta, -ball, *(-m for m in mu.values())],
        [difference(x, y), normal, *(cut.gradient for cut in cuts)],
    )
    bend = 0.5 * constants.constraint_smoothness * found.error**2
    return {
        "witness": like(y, z),
        "v": like(v, z),
        "multipliers": mu,
        "distance of v from the gradient of f": distance(v, f.gradient),
        "worst residual of the witness": max(
            (cut.value for cut in cuts), default=-math.inf
        ),
        "mu g at the witness": math.fsum(mu[c.label] * c.value for c in cuts),
        # c can change by this much within the error; more is not feasible.
        "the witness is feasible": all(
            cut.value <= norm(cut.gradient) * found.error + bend for cut in cuts
        ),
        "the witness is on the safeguard ball": is_on_ball(problem, y),
        "objective gradients": found.evaluations + 1,
        "constraint gradients": (found.evaluations + 1) * len(cuts),
    }


def _refutation(problem: Problem, constants: NonconvexConstants, found: Minimum) -> str:
    """Return what an infeasible witness proves of a small residual."""
    there = Explorer(problem).probe(found.best.point)
    claimed = constants.infeasible_slope
    if there.slope < claimed:
        return (
            f"eq. infeasible-slope claims a slope >= {claimed:.6g} where g > 0, but it "
            f"is {there.slope:.6g} at the witness, where g = {there.residual:.6g}"
        )
    return (
        "a penalty residual below h_feas has a feasible witness (lem:nc-transfer), but "
        f"here g = {there.residual:.6g} at the witness: a claimed constant is wrong"
    )
