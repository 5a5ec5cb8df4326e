"""The penalty residual, with the witness that Theorem thm:nonconvex speaks of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from oneproj.certificates.feasibility import borrowed, is_on_ball, like, outward
from oneproj.certificates.slope import Scout
from oneproj.certificates.strongly_convex import (
    BALL,
    MAX_ITERATIONS,
    OBJECTIVE,
    Minimum,
    Task,
    minimise,
)
from oneproj.certificates.subproblem import Cut, Evaluation, linearize, shifted
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


@dataclass(frozen=True)
class _Penalty:
    """The problem with its claims and the two parameters of the measure."""

    problem: Problem
    constants: NonconvexConstants
    strength: float
    prox_weight: float


def penalty_residual(
    problem: Problem,
    constants: NonconvexConstants,
    *,
    strength: float,
    prox_weight: float,
    max_iterations: int = MAX_ITERATIONS,
) -> Measure:
    """The penalty residual R(x) at the point that the parameters hold.

    ``R(x) = beta |x - Q(x)|`` with ``Q(x) = argmin { f(y) + lambda [g(y)]_+ +
    (beta/2)|y - x|^2 : y in the ball }``, eq. nc-residual; g is the worst residual.

    **Guarantee.** ``Measure.error`` bounds the distance of the value from the exact one
    (see ``strongly_convex``). ``details`` holds the witness of lem:nc-transfer: the
    point y, multipliers mu_j >= 0 with sum <= lambda, and v, with ``v + sum_j mu_j grad
    c_j(y) + n = beta (x - y)`` and n normal to the ball at y (0 inside). For a smooth
    objective v is its gradient at y, to the distance reported. If R is below ``h_feas``
    the lemma makes y feasible and n = 0; below ``beta sigma_bd / L_g`` the projection
    of x is unique. Both are decided at the far end of the error. A residual below
    ``h_feas`` with an infeasible y proves that the claims are false, and
    ``details["violation"]`` says so.

    Args:
        problem: Its parameters are moved to look around, and restored bit for bit.
        constants: The claims about f and g, in the problem's coordinates.
        strength: lambda.
        prox_weight: beta, larger than ``ell + lambda L_g``.
        max_iterations: Steps of the cutting model.

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
    penalty = _Penalty(problem, constants, lam, beta)
    with borrowed(problem.parameters) as x:
        task = Task.inside_ball(problem, x, m, lambda y: _evaluate(penalty, y, x))
        found = minimise(task, x, max_iterations=max_iterations)
        details = _witness(penalty, x, found)
        r, error = beta * distance(x, found.best.point), beta * found.error
        details |= _margins(penalty, r + (math.inf if found.broken else error))
        if details["r < h_feas"] and not details["the witness is feasible"]:
            details["violation"] = _refutation(penalty, found)
    if found.broken is not None:
        error = math.inf
        details["violation"] = (
            "f + lambda [g]_+ is not weakly convex with ell + lambda L_g = "
            f"{constants.penalized_weak_convexity(lam)}"
        )
    return Measure(
        "penalty residual", r, source="eq. nc-residual", error=error, details=details
    )


def _evaluate(penalty: _Penalty, y: list[Tensor], x: list[Tensor]) -> Evaluation:
    """The pieces of ``f + lambda max(0, c_1, ..., c_m) + (beta/2)|y - x|^2``.

    Each is as weakly convex as the whole, so each is a cut of its own.
    """
    problem, lam = penalty.problem, penalty.strength
    base = linearize(problem.objective, problem.parameters, OBJECTIVE)
    base = shifted(base, penalty.prox_weight, difference(y, x))
    pieces = [base]
    for name, constraint in problem.constraints.items():
        c = linearize(constraint, problem.parameters, name)
        gradient = combine([1.0, lam], [base.gradient, c.gradient])
        size = base.size + lam * c.size
        pieces.append(Cut(base.value + lam * c.value, gradient, name, size))
    return Evaluation(y, pieces)


def _witness(penalty: _Penalty, x: list[Tensor], found: Minimum) -> dict[str, Any]:
    """The triple (y, v, mu) and what it satisfies."""
    problem, y = penalty.problem, found.best.point
    assign(problem.parameters, y)
    f = linearize(problem.objective, problem.parameters, OBJECTIVE)
    cuts = [linearize(c, problem.parameters, n) for n, c in problem.constraints.items()]
    mu = [penalty.strength * found.weights.get(cut.label, 0.0) for cut in cuts]
    normal = outward(y, problem.center)[1]
    ball = found.weights.get(BALL, 0.0)
    v = combine(
        [penalty.prox_weight, -ball, *(-m for m in mu)],
        [difference(x, y), normal, *(cut.gradient for cut in cuts)],
    )
    return {
        "witness": like(y, problem.parameters),
        "v": like(v, problem.parameters),
        "multipliers": {c.label: m for c, m in zip(cuts, mu, strict=True)},
        "distance of v from the gradient of f": distance(v, f.gradient),
        "worst residual of the witness": max(
            (c.value for c in cuts), default=-math.inf
        ),
        "mu g at the witness": math.fsum(
            m * c.value for c, m in zip(cuts, mu, strict=True)
        ),
        "the witness is feasible": all(
            cut.value <= _reach(penalty, cut, found.error) for cut in cuts
        ),
        "the witness is on the safeguard ball": is_on_ball(
            y, problem.radius, problem.center, rounding_unit(problem.parameters)
        ),
        "objective gradients": found.evaluations + 1,
        "constraint gradients": (found.evaluations + 1) * len(cuts),
    }


def _reach(penalty: _Penalty, cut: Cut, error: float) -> float:
    """How much c can change within the error: more than that is not feasible."""
    bend = 0.5 * penalty.constants.constraint_smoothness * error**2
    return norm(cut.gradient) * error + bend


def _refutation(penalty: _Penalty, found: Minimum) -> str:
    """What an infeasible witness of a small residual proves (lem:nc-transfer)."""
    spot = Scout(penalty.problem).look(found.best.point)
    claimed = penalty.constants.infeasible_slope
    if spot.slope < claimed:
        return (
            f"eq. infeasible-slope claims a slope >= {claimed:.6g} where g > 0, but it "
            f"is {spot.slope:.6g} at the witness, where g = {spot.residual:.6g}"
        )
    return (
        "a penalty residual below h_feas has a feasible witness (lem:nc-transfer), but "
        f"here g = {spot.residual:.6g} at the witness: a claimed constant is wrong"
    )


def _margins(penalty: _Penalty, r: float) -> dict[str, Any]:
    h = penalty.constants.feasibility_margin(penalty.strength)
    tube = penalty.prox_weight * penalty.constants.tube_radius
    return {
        "h_feas": h,
        "r < h_feas": r < h,
        "beta R": tube,
        "r < beta R": r < tube,
        "distance of the projection from the witness": 2.0 * r / penalty.prox_weight,
    }
