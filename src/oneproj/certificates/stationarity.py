"""The KKT residual and the multipliers at the point that the parameters hold.

The projected-gradient mapping: how far one projected gradient step moves.
"""

from __future__ import annotations

import math

from oneproj.arguments import check_number
from oneproj.certificates.feasibility import borrowed, doubled, outward, require_finite
from oneproj.certificates.multipliers import balance
from oneproj.errors import InvalidProblemError, ProjectionFailed
from oneproj.problem.problem import Problem
from oneproj.projection.base import AbstractProjector
from oneproj.results import Measure, Projection
from oneproj.vectors.arithmetic import assign, combine, distance, norm, rounding_unit

REACH = 1e-2
"""The share of the point's length within which a constraint can hold it."""
SHORTEST = 1e-3
"""Of the radius or of 1, whichever is less: a point near 0 counts as this long."""


def kkt_residual(problem: Problem, *, reach: float | None = None) -> Measure:
    """The KKT residual ``|r|``, ``r = grad f + sum_j mu_j grad c_j + sum_i n_i``, at x.

    mu_j >= 0 belongs to a constraint that is a function, n_i to one that is a set: a
    normal of it at a point p_i near x. Whoever found x, they are chosen to minimise

        ``(t/2)|r|^2 + sum_j mu_j |c_j(x)| + sum_i <n_i, p_i - x>``

    with ``t = reach / |grad f|``. The sums are the **complementarity**. Nothing is
    declared active: a constraint at a distance s from x that balances grad f alone gets
    the share ``1 - s / reach`` of it, from all of it at the boundary to nothing at the
    reach, and pays in complementarity. This is the dual of one projected gradient step:
    ``x - t r`` is the point nearest to ``x - t grad f`` that satisfies the linearised
    constraints and lies in the sets, so r is their gradient mapping. Slack that is
    smaller than the margin of a projector, eps^0.75 of the point's length, is free.

    **What is guaranteed.** If f, c_j and the sets are convex and x is feasible, then
    for every feasible z, whatever the multipliers,

        ``f(x) - f(z) <= |r| |x - z| + complementarity``,

    by adding up the gradient inequalities of f and c_j at x and ``<n_i, z - p_i> <=
    0``. Without convexity, points along which the residual, the complementarity and the
    violation go to 0 are approximate KKT points: where they converge, Mangasarian and
    Fromovitz's condition makes the limit a KKT point (Andreani, Haeser and Martinez, On
    sequential optimality conditions for smooth constrained optimization, Optimization
    60, 2011; with this complementarity: Andreani, Martinez and Svaiter, SIAM J. Optim.
    20, 2010). For a feasible x both are zero exactly if x is a KKT point.

    **The multiplier of a set** is ``|n_i|``: if every point within h of the set were
    allowed, the objective would fall by ``|n_i| h``, to first order. For a ball or a
    halfspace it is the multiplier of the distance. A set without interior counts as the
    exact set, not as the band around it.

    **Units.** The residual and its share of ``|grad f|`` are measured in the units of
    the parameters: where gradients differ by orders, as with features in the thousands
    beside others near one, the largest hide what is left in the others, and a small
    share may belong to a point far from any solution. ``solve`` warns of such features.

    For a nonsmooth objective, or a function with a kink, one subgradient is judged and
    the residual may stay large at a solution; the Moreau residual is the measure then.
    A point at the edge of the safeguard ball may be held by the ball and not by the
    constraints. The ball's normal takes part, under its own name in ``details``, never
    among the constraints' multipliers.

    Args:
        problem: Evaluated at the point its parameters hold.
        reach: A distance > 0; None takes a hundredth of ``|x|``.

    Returns:
        A measure with the multipliers of all constraints, the complementarity and the
        residual relative to ``|grad f|`` in its details.

    Raises:
        InvalidProblemError: The reach is not > 0.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
        >>> target = torch.tensor([4.0, 5.0, 0.5], dtype=torch.float64)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        ...     {"box": oneproj.sets.Box(0.0, 1.0).on(w)})
        >>> measure = kkt_residual(problem)  # an edge: grad f = (-3, -4, 0)
        >>> measure.value < 1e-12, round(measure.details["multipliers"]["box"], 9)
        (True, 5.0)
    """
    require_finite(problem.parameters)
    length = norm(problem.parameters)
    _, gradient = problem.objective.value_and_gradient(problem.parameters)
    distance = _reach(problem, length, reach)
    found = balance(problem, gradient, length, distance)
    slope = found.slope
    return Measure(
        "KKT residual",
        found.residual,
        source="|grad f + sum_j mu_j grad c_j|",
        details={
            "relative": found.residual / slope if slope > 0 else 0.0,
            "multipliers": found.multipliers,
            "complementarity": found.complementarity,
            "active": [name for name, mu in found.multipliers.items() if mu > 0],
            "reach": distance,
            "the safeguard ball is active": found.ball > 0,
            "ball multiplier": found.ball,
            "objective gradients": 1,
            "constraint passes": len(found.multipliers),
            "constraint gradients": found.gradients,
            "set projections": found.projections,
        },
    )


def complementarity(kkt: Measure) -> Measure:
    """The complementarity ``sum_j mu_j |c_j(x)|`` of a KKT measure, as its own row.

    For a set it is ``<n, p - x>``, its multiplier times the slack along its normal.

    Example:
        >>> kkt = Measure("KKT residual", 0.0, details={"complementarity": 2.0})
        >>> complementarity(kkt).value
        2.0
    """
    value = float(kkt.details["complementarity"])
    return Measure("complementarity", value, source="sum_j mu_j |c_j|")


def _reach(problem: Problem, length: float, given: float | None) -> float:
    if given is None:
        return REACH * max(length, SHORTEST * min(1.0, problem.radius))
    why = (
        "A constraint farther away than this gets no multiplier; None takes a "
        "hundredth of the point's length."
    )
    return check_number("reach", given, why)


def gradient_mapping(
    problem: Problem, projector: AbstractProjector, *, weak_convexity: float
) -> Measure:
    """The norm of the projected-gradient mapping, at the point the parameters hold.

    ``G_ell(x) = ell |x - P_C(x - grad f(x) / ell)|``, eq. gradient-mapping, for a
    differentiable objective and a convex feasible set C inside the safeguard ball. At a
    feasible x it is zero exactly where ``0 in grad f(x) + N_C(x)``.

    **Guarantee.** For convex constraints a projection y with multipliers mu satisfies
    ``|y - P_C| <= (|r| + sqrt(|r|^2 + 4 s)) / 2``, where r is the imbalance that it
    reports and ``s = sum_j mu_j |c_j(y)|``; ``Measure.error`` is ell times this, plus
    the rounding of the gradient and of the displaced point, which a projection onto a
    convex set does not amplify.

    Args:
        problem: Its parameters are moved and restored bit for bit, also on errors.
        projector: Makes the projection; it is counted in ``details``.
        weak_convexity: ell, here also a Lipschitz constant of the gradient of f.

    Raises:
        ProjectionFailed: The projector did not reach the feasible set.
        InvalidProblemError: The projector does not accept the constraints.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> from oneproj.projection.closed_form import ClosedForm
        >>> w = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w[1]),
        ...     {"size": oneproj.sets.Ball(1.0).on(w)}, radius=1.0)
        >>> measure = gradient_mapping(problem, ClosedForm(), weak_convexity=1.0)
        >>> round(measure.value**2, 9)            # |(1, 0) - (1, -1)/sqrt(2)|^2
        0.585786438
    """
    ell = check_number("weak_convexity", weak_convexity, "It divides the step.")
    reason = projector.accepts(problem.constraints)
    if reason is not None:
        message = f"The projector {projector.name!r} cannot be used here: {reason}."
        raise InvalidProblemError(message)
    z = problem.parameters
    with borrowed(z) as x:
        _, gradient = problem.objective.value_and_gradient(z)
        displaced = combine([1.0, -1.0 / ell], [x, doubled(gradient)])
        assign(z, displaced)
        rounding = ell * distance(doubled(z), displaced)
        rounding += rounding_unit(z) * norm(gradient)
        projection = projector.project(z, problem.constraints)
        if not projection.status.ok:
            message = (
                f"The gradient mapping needs a projection that failed: "
                f"{projection.status.value} ({dict(projection.residuals)})."
            )
            raise ProjectionFailed(message)
        y = doubled(z)
    outside = outward(y, problem.center)[0] - problem.radius
    return Measure(
        "gradient mapping",
        ell * distance(x, y),
        source="eq. gradient-mapping",
        error=rounding + ell * _projection_error(projection),
        details={
            "distance outside the safeguard ball": max(0.0, outside),
            "objective gradients": 1,
            "constraint gradients": projection.evaluations,
            "projections": 1,
        },
    )


def _projection_error(projection: Projection) -> float:
    r = projection.kkt_residual * projection.distance
    s = math.fsum(
        mu * abs(projection.residuals[name])
        for name, mu in projection.multipliers.items()
    )
    return 0.5 * (r + math.sqrt(r * r + 4.0 * s))
