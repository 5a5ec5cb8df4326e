"""The constants of the assumptions: what has to be known about a problem.

Implements the assumptions of the paper's section "Main Results" (ass:convex,
ass:convex-smooth, ass:nonconvex) and the constants that its appendices "Proofs for
Convex Constraints" and "Proofs for Nonconvex Constraints" derive from them.

The paper works on the unit ball. Here a ball of any radius R is allowed, and every
derived constant is given in the user's coordinates x = c + R u; at R = 1 each formula
is the paper's. Where the centre c lies changes no constant. `on_unit_ball` returns the
constants of u -> f(c + R u), u -> g(c + R u), to which the theorems apply.

Every refusal names the inequality, both numbers and the reason. Those of a schedule are
the ranges of the theorems and of eq. nc-parameters, in the user's coordinates; every
inequality except epsilon against 1 reads the same for u and for x.

``Observations`` are what was seen of the quantities that these constants bound.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from numbers import Real
from operator import gt, le, lt
from typing import Literal, Self

from oneproj.errors import InvalidProblemError, InvalidScheduleError

SECOND_DERIVATIVES = ("weak_convexity", "constraint_smoothness")
NOT_DERIVATIVES = ("initial_gap", "radius")


@dataclass(frozen=True, kw_only=True)
class _Constants:
    """What both settings assume, with the checks of all fields."""

    weak_convexity: float
    gradient_bound: float
    constraint_gradient_bound: float
    boundary_slope: float
    initial_gap: float | None = None
    radius: float = 1.0

    def __post_init__(self) -> None:
        """Turn every field into a float; refuse values that no problem has."""
        owner = f"{type(self).__name__}: "
        for name, given in asdict(self).items():
            gap = name == "initial_gap"  # may be 0: the run starts at a minimiser
            if not (gap and given is None):
                error = InvalidProblemError
                value = checked_number(
                    name, given, _WHY, zero=gap, owner=owner, error=error
                )
                object.__setattr__(self, name, value)
        self._check_slope("boundary_slope")

    def _check_slope(self, name: str) -> None:
        """Refuse a slope above G_g: it bounds norms of grad g from below."""
        _require(
            f"{type(self).__name__}: {name} <= constraint_gradient_bound",
            (asdict(self)[name], "<=", self.constraint_gradient_bound),
            "The slope is a lower bound on gradient norms of g and the other an upper "
            "bound, so no g has both. Try: look for swapped arguments, or for a slope "
            "that was measured where the gradient is large.",
            InvalidProblemError,
        )

    def on_unit_ball(self) -> Self:
        """Return the constants of the same problem seen through x = c + R u.

        First derivatives gain a factor R, second derivatives R^2, values none.

        Example:
            >>> ConvexConstants(
            ...     weak_convexity=1.0,
            ...     gradient_bound=2.0,
            ...     constraint_gradient_bound=4.0,
            ...     boundary_slope=3.0,
            ...     radius=10.0,
            ... ).on_unit_ball().weak_convexity
            100.0
        """
        R = self.radius
        scaled = {
            name: value * (R * R if name in SECOND_DERIVATIVES else R)
            for name, value in asdict(self).items()
            if name not in NOT_DERIVATIVES
        }
        return replace(self, radius=1.0, **scaled)


@dataclass(frozen=True, kw_only=True)
class ConvexConstants(_Constants):
    """The constants of ass:convex: weakly convex objective, convex constraint.

    Attributes:
        weak_convexity: ell > 0 such that f + ell/2 |x|^2 is convex; for Theorem
            thm:convex-smooth also a Lipschitz constant of the gradient of f.
        gradient_bound: G_f, a Lipschitz constant of f on the ball that also bounds the
            norm of every stochastic subgradient, almost surely.
        constraint_gradient_bound: G_g >= |grad g(x)| for x in the ball.
        boundary_slope: sigma <= |grad g(z)| wherever g(z) = 0 in the ball.
        initial_gap: Delta_f = f(x_0) - min f over the ball, or an upper bound. None
            means the bound that always holds, 2 G_f R.
        radius: R, the radius of the safeguard ball.

    Raises:
        InvalidProblemError: a value is not finite and positive (the gap may be 0), or
            sigma > G_g, which no g allows.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> constants.proximal_lipschitz, constants.strength, constants.gap_bound
        (6.0, 4.0, 4.0)
    """

    @property
    def gap_bound(self) -> float:
        """Delta_f, or 2 G_f R when no gap was given (end of app:convex-schedule)."""
        if self.initial_gap is None:
            return 2.0 * self.gradient_bound * self.radius
        return self.initial_gap

    @property
    def proximal_lipschitz(self) -> float:
        """G_F = G_f + 4 ell R, for f + ell |x - x_t|^2 (eq. convex-error-constants)."""
        return self.gradient_bound + 4.0 * self.weak_convexity * self.radius

    @property
    def strength(self) -> float:
        """lambda_0 = 2 G_F / sigma, the exact-penalty weight (eq. convex-settings)."""
        return 2.0 * self.proximal_lipschitz / self.boundary_slope

    @property
    def subproblem_gradient_bound(self) -> float:
        """G_H = G_F + lambda_0 G_g (eq. convex-error-constants)."""
        return self.proximal_lipschitz + self.strength * self.constraint_gradient_bound


@dataclass(frozen=True, kw_only=True)
class NonconvexConstants(_Constants):
    """The constants of ass:nonconvex: nonconvex constraint, infeasible start.

    Attributes:
        weak_convexity: ell > 0 such that f + ell/2 |x|^2 is convex.
        gradient_bound: G_f, a Lipschitz constant of f on the ball that also bounds the
            norm of every stochastic subgradient, almost surely.
        constraint_gradient_bound: G_g >= |grad g(x)| for x in the ball.
        constraint_smoothness: L_g, a Lipschitz constant of grad g.
        boundary_slope: sigma_bd <= |grad g(z)| wherever g(z) = 0 (eq. boundary-cq).
        infeasible_slope: sigma_out <= dist(0, grad g(x) + N_B(x)) wherever g(x) > 0
            in the ball (eq. infeasible-slope).
        initial_gap: an upper bound on Delta_lambda = Psi(x_0) - min Psi over the ball,
            Psi = f + lambda [g]_+, for the lambda of the schedule. None means the
            bound that always holds, 2 G_lambda R.
        radius: R, the radius of the safeguard ball.

    Raises:
        InvalidProblemError: a value is not finite and positive (the gap may be 0), a
            slope exceeds G_g, or a slope is not below L_g R, which no g allows.

    Example:
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ... )
        >>> constants.tube_radius, constants.feasibility_margin(strength=5.0)
        (0.5, 3.0)
    """

    constraint_smoothness: float
    infeasible_slope: float

    def __post_init__(self) -> None:
        """Check all fields, and the slopes against L_g R.

        The feasible set lies inside the open ball, so g has a minimiser there, with
        gradient 0. The nearest boundary point is less than R away, and the gradient
        there bounds both slopes (for sigma_out, approach it from outside).
        """
        super().__post_init__()
        self._check_slope("infeasible_slope")
        for name in ("boundary_slope", "infeasible_slope"):
            _require(
                f"{type(self).__name__}: {name} < constraint_smoothness * radius",
                (asdict(self)[name], "<", self.constraint_smoothness * self.radius),
                "The gradient of g is 0 at its minimiser inside the feasible set and "
                "reaches the slope less than a radius away, so no g has these "
                "constants. Try: a larger constraint_smoothness or a smaller slope.",
                InvalidProblemError,
            )

    @property
    def tube_radius(self) -> float:
        """sigma_bd / L_g: closer than this, the projection is unique (lem:geometry)."""
        return self.boundary_slope / self.constraint_smoothness

    def penalized_weak_convexity(self, strength: float) -> float:
        """rho_lambda = ell + lambda L_g, the weak convexity of f + lambda [g]_+."""
        return self.weak_convexity + strength * self.constraint_smoothness

    def strong_convexity(self, strength: float, prox_weight: float) -> float:
        """The m = beta - ell - lambda L_g of the inner problem (eq. nc-parameters).

        Raises:
            InvalidScheduleError: It is not positive.
        """
        rho = self.penalized_weak_convexity(strength)
        _require(
            "prox_weight > weak_convexity + strength * constraint_smoothness",
            (prox_weight, ">", rho),
            "Otherwise the inner problem is not strongly convex (eq. nc-parameters). "
            "Try: a larger prox_weight, such as twice the right-hand side.",
        )
        return prox_weight - rho

    def penalized_lipschitz(self, strength: float) -> float:
        """G_lambda = G_f + lambda G_g, a Lipschitz constant of f + lambda [g]_+."""
        return self.gradient_bound + strength * self.constraint_gradient_bound

    def subproblem_gradient_bound(self, strength: float, prox_weight: float) -> float:
        """G_H = G_lambda + 2 beta R, for every inner stochastic subgradient."""
        return self.penalized_lipschitz(strength) + 2.0 * prox_weight * self.radius

    def feasibility_margin(self, strength: float) -> float:
        """h_feas = lambda sigma_out - G_f.

        A penalty residual below it forces the proximal witness to be feasible
        (lem:nc-transfer).
        """
        return strength * self.infeasible_slope - self.gradient_bound

    def gap_bound(self, strength: float) -> float:
        """Delta_lambda, or 2 G_lambda R when no gap was given (end of app. C)."""
        if self.initial_gap is None:
            return 2.0 * self.penalized_lipschitz(strength) * self.radius
        return self.initial_gap


def checked_number(
    name: str,
    value: float,
    why: str,
    *,
    zero: bool = False,
    owner: str = "",
    error: type[InvalidProblemError | InvalidScheduleError] = InvalidScheduleError,
) -> float:
    """Return the value as a float; refuse what is not finite and positive.

    Example:
        >>> checked_number("epsilon", 1, "It is the target.")
        1.0
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        message = (
            f"{owner}{name} must be a real number, got {value!r} of type "
            f"{type(value).__name__}.\n"
            "The schedules are plain arithmetic. Try: float(...) of the value."
        )
        raise error(message)
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        sign = ">=" if zero else ">"
        message = (
            f"{owner}{name} must be finite and {sign} 0, got {name} = {value}.\n{why}"
        )
        raise error(message)
    return float(value)


_WHY = (
    "Every constant of the assumptions (ass:convex, ass:nonconvex) is positive; only "
    "the gap may be 0. Try: any upper bound for weak_convexity, the gradient bounds "
    "and the smoothness, a lower bound for a slope, None for the gap, and a radius "
    "that is known to contain the feasible set."
)


def check_range(epsilon: float, R: float, sign: Literal["<", "<="]) -> None:
    """Refuse a target above 1 on the unit ball, where the measure is R times ours.

    Example:
        >>> check_range(0.5, 2.0, "<=")
    """
    _require(
        f"epsilon {sign} 1" if R == 1.0 else f"epsilon * radius {sign} 1",
        (epsilon * R, sign, 1),
        "The theorems are stated for a target of at most 1 on the unit ball, where the "
        "measure is radius times the measure here. Try: a smaller epsilon, such as "
        "0.9 / radius, or scale the objective.",
    )


def check_nonconvex_range(
    constants: NonconvexConstants, epsilon: float, strength: float, prox_weight: float
) -> None:
    """Refuse what eq. nc-parameters or the range of thm:nonconvex excludes."""
    _require(
        "strength > gradient_bound / infeasible_slope",
        (strength, ">", constants.gradient_bound / constants.infeasible_slope),
        "A weaker penalty lets infeasible points be stationary (eq. nc-parameters). "
        "Try: strength=None, or twice the right-hand side.",
    )
    constants.strong_convexity(strength, prox_weight)  # refuses beta <= rho_lambda
    _require(
        "epsilon < h_feas = strength * infeasible_slope - gradient_bound",
        (epsilon, "<", constants.feasibility_margin(strength)),
        "Only a residual below h_feas has a feasible witness (lem:nc-transfer). "
        "Try: strength=None, a larger strength or a smaller epsilon.",
    )
    _require(
        "epsilon < prox_weight * boundary_slope / constraint_smoothness",
        (epsilon, "<", prox_weight * constants.tube_radius),
        "Only then is the final projection unique (lem:nc-transfer). "
        "Try: prox_weight=None, a larger prox_weight or a smaller epsilon.",
    )
    check_range(epsilon, constants.radius, "<")


_Sign = Literal["<", "<=", ">"]
_COMPARISONS = {"<": (lt, ">="), "<=": (le, ">"), ">": (gt, "<=")}
"""How to compare, and the opposite sign."""


def _require(
    inequality: str,
    numbers: tuple[float, _Sign, float],
    why: str,
    error: type[InvalidProblemError | InvalidScheduleError] = InvalidScheduleError,
) -> None:
    """Raise with the inequality, both numbers, the reason and a way out."""
    left, sign, right = numbers
    holds, opposite = _COMPARISONS[sign]
    if not holds(left, right):
        message = f"{inequality} fails: {left} {opposite} {right}.\n{why}"
        raise error(message)


ROUNDINGS = 1e3
"""A constant is contradicted by more than this many roundings of what was seen."""


@dataclass
class Observations:
    """The extremes that were seen in the safeguard ball; plain numbers, to be saved.

    Attributes:
        objective_gradient: The largest norm of a stochastic gradient of f.
        constraint_gradient: The largest norm of grad g.
        constraint_smoothness: The largest ``|grad g(x) - grad g(y)| / |x - y|``.
        boundary_slope: The smallest norm of grad g where g = 0.
        infeasible_gradient: The smallest norm of grad g where g > 0.
        infeasible_slope: The smallest ``dist(0, grad g + N_B)`` where g > 0.
        feasible_distance: The largest distance of a feasible point from the centre.

    Example:
        >>> seen = Observations()
        >>> seen.add(objective_gradient=4.5)
        >>> seen.add(objective_gradient=2.0, boundary_slope=0.5)
        >>> seen.objective_gradient, seen.boundary_slope
        (4.5, 0.5)
    """

    objective_gradient: float = 0.0
    constraint_gradient: float = 0.0
    constraint_smoothness: float = 0.0
    boundary_slope: float = math.inf
    infeasible_gradient: float = math.inf
    infeasible_slope: float = math.inf
    feasible_distance: float = 0.0

    def add(self, **seen: float) -> None:
        """Keep what is more extreme than all before."""
        kept = vars(self)
        for name, value in seen.items():
            extreme = min if vars(Observations)[name] == math.inf else max
            kept[name] = extreme(kept[name], value)

    def contradictions(
        self, constants: ConvexConstants | NonconvexConstants, rounding: float
    ) -> list[str]:
        """What is claimed and what was seen, of every constant that is refuted.

        For a convex g a slope of sigma where g = 0 makes ``|grad g| >= sigma`` where
        g > 0, too: by lem:convex-eb such an x has a feasible point within g(x)/sigma,
        and g falls by at most |grad g(x)| per unit on the way there.

        Args:
            constants: What is claimed.
            rounding: The relative rounding of what was seen.

        Example:
            >>> claims = ConvexConstants(
            ...     weak_convexity=1.0, gradient_bound=0.02,
            ...     constraint_gradient_bound=1.0, boundary_slope=1.0)
            >>> Observations(objective_gradient=4.5).contradictions(claims, 2**-52)
            ['|grad f| <= 0.02 (gradient_bound); 4.5 was seen']
        """
        room, edge = ROUNDINGS * rounding, "|grad g| where g = 0"
        upper = [
            ("|grad f|", "gradient_bound", self.objective_gradient),
            ("|grad g|", "constraint_gradient_bound", self.constraint_gradient),
            ("|x - center| of every feasible x", "radius", self.feasible_distance),
        ]
        lower = [(edge, "boundary_slope", self.boundary_slope)]
        if isinstance(constants, ConvexConstants):
            beyond = f"{edge}, hence where g > 0,"
            lower.append((beyond, "boundary_slope", self.infeasible_gradient))
        else:
            bend = "|grad g(x) - grad g(y)| / |x - y|"
            upper.append((bend, "constraint_smoothness", self.constraint_smoothness))
            descent = "dist(0, grad g + N_B) where g > 0"
            lower.append((descent, "infeasible_slope", self.infeasible_slope))
        claims = asdict(constants)
        found = [
            f"{what} <= {claims[name]:.6g} ({name}); {seen:.6g} was seen"
            for what, name, seen in upper
            if seen > (1.0 + room) * claims[name]
        ]
        return found + [
            f"{what} >= {claims[name]:.6g} ({name}); {seen:.6g} was seen"
            for what, name, seen in lower
            if seen < (1.0 - room) * claims[name]
        ]
