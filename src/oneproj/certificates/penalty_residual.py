"""The penalty residual, with the witness of Theorem thm:nonconvex."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from oneproj.certificates.assumptions import Explorer
from oneproj.certificates.feasibility import borrowed, is_on_ball, like, outward
from oneproj.certificates.strongly_convex import (
    BALL,
    OBJECTIVE,
    Cut,
    Linearization,
    Minimum,
    minimise,
)
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.problem.problem import Problem
from oneproj.results import Measure
from oneproj.theory import NonconvexConstants
from oneproj.vectors.arithmetic import assign, combine, difference, distance, norm


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
        r, error = beta * distance(x, found.best.point), beta * found.error
        if found.refuted is not None:
            error = math.inf
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
