"""The projected-gradient mapping: how far one projected gradient step moves."""

from __future__ import annotations

import math

from oneproj.arguments import check_number
from oneproj.certificates.points import borrowed, doubled, outward
from oneproj.errors import InvalidProblemError, ProjectionFailed
from oneproj.parameters import assign, combine, distance, norm, rounding_unit
from oneproj.problem import Problem
from oneproj.projection.base import AbstractProjector
from oneproj.results import Measure, Projection


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
