"""Where the theorems hold: every refusal of a schedule, with the inequality.

Implements the ranges in the paper's Theorems thm:convex-smooth, thm:convex-nonsmooth
and thm:nonconvex, and of eq. nc-parameters, in the user's coordinates x = c + R u.
Every inequality but epsilon against 1 reads the same for u and for x.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING

from oneproj.errors import InvalidScheduleError

if TYPE_CHECKING:
    from oneproj.theory.constants import ConvexConstants, NonconvexConstants

_NORMALISATION = (
    "The theorems are stated for a target of at most 1 on the unit ball, where the "
    "measure is radius times the measure here. "
)


def checked_positive(name: str, value: float) -> float:
    """Return the value as a float; refuse what is not finite and positive.

    Example:
        >>> checked_positive("epsilon", 1)
        1.0
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        message = (
            f"{name} must be a real number, got {value!r} of type "
            f"{type(value).__name__}.\nTry: float(...) of the value."
        )
        raise InvalidScheduleError(message)
    if not math.isfinite(value):
        message = f"{name} must be finite, got {name} = {value}.\n{_WHY[name]}"
        raise InvalidScheduleError(message)
    _require(value > 0, f"{name} > 0", f"{value} <= 0", _WHY[name])
    return float(value)


def check_convex_range(constants: ConvexConstants, epsilon: float) -> None:
    """Refuse epsilon > 1 on the unit ball."""
    R = constants.radius
    _require(
        epsilon * R <= 1.0,
        *_against_one(epsilon, R, "<=", ">"),
        _NORMALISATION + "Try: epsilon = 1 / radius, or scale the objective.",
    )


def check_nonconvex_range(
    constants: NonconvexConstants, epsilon: float, strength: float, prox_weight: float
) -> None:
    """Refuse what eq. nc-parameters or the range of thm:nonconvex excludes."""
    eps, lam, beta, R = epsilon, strength, prox_weight, constants.radius
    least = constants.gradient_bound / constants.infeasible_slope
    margin = constants.feasibility_margin(lam)
    # The second test is the first up to rounding; both must hold for h_feas > 0.
    _require(
        lam > least and margin > 0,
        "strength > gradient_bound / infeasible_slope",
        f"{lam} <= {least}",
        "A weaker penalty lets infeasible points be stationary (eq. nc-parameters). "
        "Try: strength=None, or twice the right-hand side.",
    )
    constants.strong_convexity(lam, beta)  # refuses beta <= ell + lambda L_g
    _require(
        eps < margin,
        "epsilon < h_feas = strength * infeasible_slope - gradient_bound",
        f"{eps} >= {margin}",
        "Only a residual below h_feas has a feasible witness (lem:nc-transfer). "
        "Try: strength=None, a larger strength or a smaller epsilon.",
    )
    reach = beta * constants.tube_radius
    _require(
        eps < reach,
        "epsilon < prox_weight * boundary_slope / constraint_smoothness",
        f"{eps} >= {reach}",
        "Only then is the final projection unique (lem:nc-transfer). "
        "Try: prox_weight=None, a larger prox_weight or a smaller epsilon.",
    )
    _require(
        eps * R < 1.0,
        *_against_one(eps, R, "<", ">="),
        _NORMALISATION + "Try: a smaller epsilon, or scale the objective.",
    )


def _against_one(eps: float, R: float, sign: str, fails: str) -> tuple[str, str]:
    """Write epsilon against 1, the one inequality in which the radius shows."""
    if R == 1.0:
        return f"epsilon {sign} 1", f"{eps} {fails} 1"
    return f"epsilon * radius {sign} 1", f"{eps} * {R} = {eps * R} {fails} 1"


def _require(holds: bool, inequality: str, numbers: str, why: str) -> None:  # noqa: FBT001 - a condition, not a switch
    """Raise with the inequality, both numbers, the reason and a way out."""
    if not holds:
        message = f"{inequality} fails: {numbers}.\n{why}"
        raise InvalidScheduleError(message)


_WHY = {
    "epsilon": (
        "epsilon is the target for the stationarity measure; T and K grow like "
        "epsilon^-2 each. Try: a fraction of the measure at the start."
    ),
    "strength": "strength weighs the penalty (eq. nc-parameters). Try: strength=None.",
    "prox_weight": (
        "prox_weight makes the inner problem strongly convex (eq. nc-parameters). "
        "Try: prox_weight=None."
    ),
}
