"""What the assumptions ask of their constants: every refusal, with the reason.

Implements the sign conditions of the paper's assumptions ass:convex and ass:nonconvex
(section "Main Results") and the inequalities between constants that they imply.
"""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Real
from typing import TYPE_CHECKING

from oneproj.errors import InvalidProblemError

if TYPE_CHECKING:
    from oneproj.theory.constants import ConvexConstants, NonconvexConstants


def check_values(constants: ConvexConstants | NonconvexConstants) -> None:
    """Turn every field into a float; refuse what is not finite and positive.

    A gap of zero is allowed: the run then starts at a minimiser.
    """
    owner = type(constants).__name__
    for field in fields(constants):
        name, given = field.name, getattr(constants, field.name)
        if name == "initial_gap" and given is None:
            continue
        if not isinstance(given, Real) or isinstance(given, bool):
            message = (
                f"{owner}: {name} must be a real number, got {given!r} of type "
                f"{type(given).__name__}.\n"
                "The schedules are plain arithmetic. Try: float(...) of the value."
            )
            raise InvalidProblemError(message)
        value, sign = float(given), ">=" if name == "initial_gap" else ">"
        if not (math.isfinite(value) and (value > 0 or (value == 0 and sign == ">="))):
            message = (
                f"{owner}: {name} must be finite and {sign} 0, got {name} = {value}.\n"
                f"{_MEANING[name]}"
            )
            raise InvalidProblemError(message)
        object.__setattr__(constants, name, value)


def check_slopes(
    constants: ConvexConstants | NonconvexConstants,
    names: tuple[str, ...],
    *,
    reach: float = math.inf,
) -> None:
    """Refuse a slope that no g with these gradient bounds can have.

    A slope is a lower bound on norms of grad g, so it is at most G_g. With an L_g it is
    also below L_g R: the feasible set lies inside the open ball, so g has a minimiser
    there, with gradient 0; the nearest boundary point is less than R away, and the
    gradient there bounds both slopes (for sigma_out, approach it from outside).
    """
    owner, largest = type(constants).__name__, constants.constraint_gradient_bound
    for name in names:
        slope = getattr(constants, name)
        if slope > largest:
            message = (
                f"{owner}: {name} <= constraint_gradient_bound fails: "
                f"{slope} > {largest}.\n"
                "The slope is a lower bound on gradient norms of g and the other an "
                "upper bound, so no g has both. Try: look for swapped arguments, or "
                "for a slope that was measured where the gradient is large."
            )
            raise InvalidProblemError(message)
        if slope >= reach:
            message = (
                f"{owner}: {name} < constraint_smoothness * radius fails: "
                f"{slope} >= {reach}.\n"
                "The gradient of g is 0 at its minimiser inside the feasible set and "
                "reaches the slope at a boundary point less than a radius away, so no "
                "g has these constants. Try: a larger constraint_smoothness or a "
                "smaller slope."
            )
            raise InvalidProblemError(message)


_MEANING = {
    "weak_convexity": (
        "ell is the weak-convexity constant of the objective (ass:convex); the "
        "proximal weight is built from it. Try: any upper bound, for example a "
        "Lipschitz constant of the gradient; for a convex objective a small number."
    ),
    "gradient_bound": (
        "G_f bounds the objective's stochastic subgradients (ass:convex, eq. oracle). "
        "Try: an upper bound over the ball; clip the gradient if there is none."
    ),
    "constraint_gradient_bound": (
        "G_g bounds |grad g| over the ball (ass:convex). Try: any upper bound."
    ),
    "constraint_smoothness": (
        "L_g is a Lipschitz constant of grad g (ass:nonconvex). Try: any upper bound; "
        "for a convex g use ConvexConstants, which needs none."
    ),
    "boundary_slope": (
        "sigma bounds |grad g| from below where g = 0 (ass:convex, eq. boundary-cq); "
        "without it the penalty is not exact. Try: another defining function g."
    ),
    "infeasible_slope": (
        "sigma_out bounds dist(0, grad g + N_B) from below where g > 0 "
        "(eq. infeasible-slope); without it the method can stop at an infeasible "
        "point. Try: another defining function g or a smaller ball."
    ),
    "initial_gap": (
        "The gap is the objective at the start minus its minimum over the ball. "
        "Try: None, which stands for 2 * Lipschitz constant * radius."
    ),
    "radius": (
        "The safeguard ball must be bounded: the constants are suprema over it. "
        "Try: a radius that is known to contain the feasible set."
    ),
}
