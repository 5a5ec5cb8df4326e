"""From an inequality to a count: T and K as whole numbers.

Implements the two choices of the paper's appendices app:convex-schedule and
app:nc-schedule: T is a ceiling, K any number that satisfies a scalar inequality.

What a theorem asks of a run, all but K: the two schedule equations.

Implements eq. cv-schedule with eq. convex-settings (the paper's app:convex-schedule)
and eq. nc-schedule with eq. nc-parameters (app:nc-schedule). T and e_* are computed on
the unit ball, for u with x = c + R u and the target R epsilon; the rest is returned in
the user's coordinates (`schedules` says why).

The schedules of the three theorems: how long to run, and with which parameters.

Implements the paper's appendix "Shared Schedule and Proofs of the Convex-Constraint
Theorems" (app:convex-schedule) and "Proof of Theorem thm:nonconvex" (app:nc-schedule).

**A ball that is not the unit ball.** With x = c + R u the theorems hold for
u -> f(c + R u), u -> g(c + R u) (see `constants`). T, delta_in, e_* and K are computed
there, for the target R epsilon, because all three measures scale alike: the measure of
u is R times the measure of x. Algorithm 1 is then the same in both coordinates:

- beta_u/2 |u - u_t|^2 = beta/2 |x - x_t|^2 gives beta = beta_u / R^2, likewise m;
- the step 2 / (m (s + 1)) gains the factor R^2 that the gradient R grad f and the
  change of variable dx = R du ask for;
- values of f and g do not change, so the penalty, its strength and its smoothing do
  not either, and neither do T and K.

So a schedule is returned in the user's coordinates and runs on the user's problem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from oneproj.errors import InvalidProblemError, InvalidScheduleError
from oneproj.theory.bounds import convex_inner_error, inner_bound
from oneproj.theory.constants import (
    ConvexConstants,
    NonconvexConstants,
    check_convex_range,
    check_nonconvex_range,
    checked_positive,
)
from oneproj.theory.describe import describe_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

InnerSteps = Literal["doubling", "smallest"]

# Beyond this a double holds neither the count nor its inverse.
_MOST_STEPS = 2.0**1000


def find_outer_steps(scale: float, epsilon: float) -> int:
    """Return T = max(2, ceil(scale / epsilon^2)).

    Example:
        >>> find_outer_steps(3.0, epsilon=0.5), find_outer_steps(0.0, epsilon=0.5)
        (12, 2)
    """
    square = epsilon * epsilon
    if not (square > 0.0 and scale / square <= _MOST_STEPS):
        raise InvalidScheduleError(_beyond_doubles("T", f"{scale} / {epsilon}^2"))
    return max(2, math.ceil(scale / square))


def find_inner_steps(
    error: Callable[[int], float], target: float, how: InnerSteps = "doubling"
) -> int:
    """Return a K >= 2 with error(K) <= target, for an error that decreases in K.

    "doubling" returns the first K of 2, 4, 8, ...; "smallest" then bisects between it
    and the half that failed. Both inner errors, U_K and e_K, decrease strictly for all
    K > 0 (see `bounds.inner_bound`), so the bisection finds the smallest K; where
    rounding hides the decrease (K above about 1e15), it finds a K that passes and
    whose predecessor fails.

    Example:
        >>> find_inner_steps(lambda K: 1 / K, 0.01)
        128
        >>> find_inner_steps(lambda K: 1 / K, 0.01, "smallest")
        100
    """
    if how not in get_args(InnerSteps):
        message = (
            f"inner_steps must be 'doubling' or 'smallest', got {how!r}.\n"
            "Both satisfy the theorem; 'smallest' needs up to half the steps."
        )
        raise InvalidScheduleError(message)
    passes = 2
    while not error(passes) <= target:
        passes *= 2
        if passes > _MOST_STEPS:
            raise InvalidScheduleError(_beyond_doubles("K", f"e_K <= {target}"))
    if how == "doubling" or passes == 2:  # noqa: PLR2004 - the least K allowed
        return passes
    fails = passes // 2
    while passes - fails > 1:
        middle = (passes + fails) // 2
        if error(middle) <= target:
            passes = middle
        else:
            fails = middle
    return passes


def _beyond_doubles(symbol: str, condition: str) -> str:
    """Say that the theorem holds but its numbers cannot be represented."""
    return (
        f"{symbol} <= {_MOST_STEPS:.0e} fails: {symbol} follows from {condition}.\n"
        "The theorem holds, but no double can hold its number of steps. Try: a larger "
        "epsilon, and constants in other units."
    )


class Requirements(NamedTuple):
    """The numbers that the theorem fixes (T from below, e_* from above)."""

    setting: Literal["convex", "nonconvex"]
    epsilon: float
    outer_steps: int
    inner_error_target: float
    prox_weight: float
    strong_convexity: float
    penalty: Literal["softplus", "hinge"]
    strength: float
    first_index: Literal[0, 1]


def convex_requirements(constants: ConvexConstants, epsilon: float) -> Requirements:
    """Evaluate eq. cv-schedule and eq. convex-settings.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> convex_requirements(constants, 0.5).inner_error_target
        6.25e-05
    """
    eps = checked_positive("epsilon", epsilon)
    check_convex_range(constants, eps)
    unit, eps_u = constants.on_unit_ball(), eps * constants.radius
    ell, G_F = unit.weak_convexity, unit.proximal_lipschitz
    return Requirements(
        setting="convex",
        epsilon=eps,
        outer_steps=find_outer_steps(1000.0 * ell * unit.gap_bound, eps_u),
        inner_error_target=min(
            eps_u * eps_u / (4000.0 * ell), G_F * eps_u / (60.0 * ell)
        ),
        prox_weight=2.0 * constants.weak_convexity,
        strong_convexity=constants.weak_convexity,
        penalty="softplus",
        strength=constants.strength,
        first_index=1,
    )


def nonconvex_requirements(
    constants: NonconvexConstants,
    epsilon: float,
    strength: float | None,
    prox_weight: float | None,
) -> Requirements:
    """Evaluate eq. nc-schedule for a strength and prox weight in range.

    None stands for twice what eq. nc-parameters and the theorem's range ask for.

    Example:
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ... )
        >>> nonconvex_requirements(constants, 0.5, 4.0, None).prox_weight
        34.0
    """
    eps = checked_positive("epsilon", epsilon)
    if strength is None:
        G_f = constants.gradient_bound
        strength = (G_f + max(G_f, 2.0 * eps)) / constants.infeasible_slope
    lam = checked_positive("strength", strength)
    rho = constants.penalized_weak_convexity(lam)
    if prox_weight is None:
        prox_weight = max(2.0 * rho, 2.0 * eps / constants.tube_radius)
    beta = checked_positive("prox_weight", prox_weight)
    check_nonconvex_range(constants, eps, lam, beta)
    m, R = constants.strong_convexity(lam, beta), constants.radius
    gap, eps_u, beta_u = constants.gap_bound(lam), eps * R, beta * R * R
    return Requirements(
        setting="nonconvex",
        epsilon=eps,
        outer_steps=find_outer_steps(48.0 * beta_u * gap, eps_u),
        inner_error_target=eps_u * eps_u / (48.0 * beta_u * (1.0 + beta / m)),
        prox_weight=beta,
        strong_convexity=m,
        penalty="hinge",
        strength=lam,
        first_index=0,
    )


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Every number that a run of Algorithm 1 needs, in the user's coordinates.

    Made by `convex_schedule` and `nonconvex_schedule`. A copy with other numbers can be
    run as well; `within_theorem` and `describe` then say whether a theorem covers it.

    Attributes:
        setting: "convex" or "nonconvex" constraint.
        epsilon: target for the stationarity measure.
        outer_steps: T.
        inner_steps: K.
        prox_weight: beta.
        strong_convexity: m; step s of an inner run has size 2 / (m (s + 1)).
        penalty: "softplus" or "hinge".
        strength: lambda_0 or lambda.
        smoothing: gamma of the softplus; None for the hinge.
        first_index: the returned iterate is drawn from x_first..x_{first+T-1}.
        inner_failure: delta_in, the probability that one inner run fails.
        inner_error_target: e_*.
        inner_error: e_K (convex) or U_K (nonconvex) at K and delta_in.
        radius: R, the radius of the safeguard ball.
        constants: what the numbers were computed from.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> quick = convex_schedule(constants, 0.5).with_steps(inner_steps=100)
        >>> quick.smoothing, quick.within_theorem
        (0.01, False)
    """

    setting: Literal["convex", "nonconvex"]
    epsilon: float
    outer_steps: int
    inner_steps: int
    prox_weight: float
    strong_convexity: float
    penalty: Literal["softplus", "hinge"]
    strength: float
    smoothing: float | None
    first_index: Literal[0, 1]
    inner_failure: float
    inner_error_target: float
    inner_error: float
    radius: float
    constants: ConvexConstants | NonconvexConstants

    @property
    def gradient_calls(self) -> int:
        """T K, the number of stochastic subgradients of the whole run."""
        return self.outer_steps * self.inner_steps

    @property
    def indices(self) -> range:
        """The index set I from which the returned outer iterate is drawn."""
        return range(self.first_index, self.first_index + self.outer_steps)

    def step_size(self, s: int) -> float:
        """eta_s = 2 / (m (s + 1)), the size of inner step s = 1..K (Algorithm 1)."""
        return 2.0 / (self.strong_convexity * (s + 1))

    def with_steps(
        self, *, outer_steps: int | None = None, inner_steps: int | None = None
    ) -> Schedule:
        """Return a copy with another T or K, and delta_in, gamma, e_K to match.

        A longer run stays within the theorem, a shorter one does not.

        Raises:
            InvalidScheduleError: a count is not a whole number >= 2 (Algorithm 1).
        """
        T = self.outer_steps if outer_steps is None else outer_steps
        K = self.inner_steps if inner_steps is None else inner_steps
        for name, steps in (("outer_steps", T), ("inner_steps", K)):
            if not isinstance(steps, Integral) or steps < 2:  # noqa: PLR2004 - see above
                message = (
                    f"{name} >= 2 fails: {name} = {steps!r}.\n"
                    "Algorithm 1 asks for whole numbers T, K >= 2; with K = 1 the "
                    "average is the centre and nothing moves."
                )
                raise InvalidScheduleError(message)
        longer = replace(
            self,
            outer_steps=T,
            inner_steps=K,
            smoothing=1 / K if self.penalty == "softplus" else None,
            inner_failure=1 / (6 * T),
        )
        return replace(longer, inner_error=longer._error(K))  # noqa: SLF001 - a Schedule too

    @property
    def within_theorem(self) -> bool:
        """Whether the theorem's schedule allows exactly these numbers.

        True for what the two functions below return, and for `with_steps` of them as
        long as T is not smaller and e_K <= e_* still holds.
        """
        try:
            needed = self._requirements()
            matched = self.with_steps()
        except InvalidScheduleError:
            return False
        fixed = needed._replace(outer_steps=self.outer_steps)._asdict()
        return (
            self == matched
            and self.radius == self.constants.radius
            and self.outer_steps >= needed.outer_steps
            and self.inner_error <= needed.inner_error_target
            and all(getattr(self, name) == value for name, value in fixed.items())
        )

    def describe(self) -> str:
        """Return a table, one row per number, with the equation it comes from."""
        return describe_schedule(self)

    def _requirements(self) -> Requirements:
        """Compute anew what the theorem asks for at this target."""
        constants, eps = self.constants, self.epsilon
        if isinstance(constants, ConvexConstants):
            return convex_requirements(constants, eps)
        lam, beta = self.strength, self.prox_weight
        return nonconvex_requirements(constants, eps, lam, beta)

    def _error(self, K: int) -> float:
        """Return e_K (eq. convex-error-constants) or U_K (eq. inner-bound)."""
        R, delta = self.constants.radius, self.inner_failure
        m_u, unit = self.strong_convexity * R * R, self.constants.on_unit_ball()
        if isinstance(unit, ConvexConstants):
            return convex_inner_error(K, m_u, unit.subproblem_gradient_bound, delta)
        beta_u = self.prox_weight * R * R
        G_H = unit.subproblem_gradient_bound(self.strength, beta_u)
        return inner_bound(K, m_u, G_H, delta)


def convex_schedule(
    constants: ConvexConstants, epsilon: float, *, inner_steps: InnerSteps = "doubling"
) -> Schedule:
    """Return the schedule of Theorems thm:convex-smooth and thm:convex-nonsmooth.

    On the unit ball (eq. cv-schedule, convex-settings, convex-error-constants):

        T        = max(2, ceil(1000 ell Delta_f / epsilon^2))
        delta_in = 1 / (6 T)
        e_*      = min(epsilon^2 / (4000 ell), G_F epsilon / (60 ell))
        K        : e_K(delta_in) = U_K(ell, G_H, delta_in) + log(2)/K <= e_*
        lambda_0 = 2 (G_f + 4 ell) / sigma,  gamma = 1/K,  beta = 2 ell,  m = ell

    **Guarantee.** From a feasible start, x_J projected once onto the feasible set,
    with J uniform in {1..T}, has G_ell <= epsilon (smooth f) and S_ell <= epsilon
    (any f of ass:convex), each with probability at least 2/3.

    Args:
        constants: the constants of ass:convex.
        epsilon: target, 0 < epsilon <= 1 (over the radius, if that is not 1).
        inner_steps: "doubling" takes the first K of 2, 4, 8, ... that is large enough,
            as the paper suggests; "smallest" the smallest K.

    Raises:
        InvalidScheduleError: epsilon lies outside the theorems' range.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> schedule = convex_schedule(constants, 0.5)
        >>> schedule.outer_steps, schedule.inner_steps, schedule.strength
        (16000, 536870912, 4.0)
    """
    _check_constants("convex_schedule", constants, ConvexConstants)
    return _complete(constants, convex_requirements(constants, epsilon), inner_steps)


def nonconvex_schedule(
    constants: NonconvexConstants,
    epsilon: float,
    *,
    strength: float | None = None,
    prox_weight: float | None = None,
    inner_steps: InnerSteps = "doubling",
) -> Schedule:
    """Return the schedule of Theorem thm:nonconvex.

    On the unit ball (eq. nc-schedule, nc-parameters):

        T        = max(2, ceil(48 beta Delta_lambda / epsilon^2))
        delta_in = 1 / (6 T)
        e_*      = epsilon^2 / (48 beta (1 + beta/m)),  m = beta - ell - lambda L_g
        K        : U_K(m, G_H, delta_in) <= e_*

    **Guarantee.** From any start in the ball, x_J with J uniform in {0..T-1} has
    R_{lambda,beta}(x_J) <= epsilon with probability at least 2/3. Its projection is
    then unique and within 2 epsilon / beta of a feasible point y at which
    |v + mu grad g(y)| <= epsilon for some v in the subdifferential of f at y and a
    multiplier mu in [0, lambda] with mu g(y) = 0.

    Args:
        constants: the constants of ass:nonconvex.
        epsilon: target, 0 < epsilon < min(h_feas, beta * tube radius, 1 / radius).
        strength: lambda > G_f / sigma_out. None takes (G_f + max(G_f, 2 epsilon)) /
            sigma_out, so that h_feas >= 2 epsilon.
        prox_weight: beta > ell + lambda L_g. None takes max(2 (ell + lambda L_g),
            2 epsilon / tube radius), so that beta * tube radius >= 2 epsilon.
        inner_steps: "doubling" takes the first K of 2, 4, 8, ... that is large enough,
            as the paper suggests; "smallest" the smallest K.

    Raises:
        InvalidScheduleError: a parameter lies outside the theorem's range.

    Example:
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ... )
        >>> schedule = nonconvex_schedule(constants, 0.5)
        >>> schedule.strength, schedule.prox_weight, schedule.outer_steps
        (4.0, 34.0, 235008)
    """
    _check_constants("nonconvex_schedule", constants, NonconvexConstants)
    needed = nonconvex_requirements(constants, epsilon, strength, prox_weight)
    return _complete(constants, needed, inner_steps)


def _complete(
    constants: ConvexConstants | NonconvexConstants,
    needed: Requirements,
    how: InnerSteps,
) -> Schedule:
    """Find K, the one number that the requirements leave open."""
    draft = Schedule(
        **needed._asdict(),
        inner_steps=2,
        smoothing=None,
        inner_failure=1 / (6 * needed.outer_steps),
        inner_error=float("inf"),
        radius=constants.radius,
        constants=constants,
    )
    K = find_inner_steps(draft._error, draft.inner_error_target, how)  # noqa: SLF001
    return draft.with_steps(inner_steps=K)


def _check_constants(
    function: str, given: object, kind: type[ConvexConstants | NonconvexConstants]
) -> None:
    """Refuse what is not the dataclass of the constants of a theorem."""
    if isinstance(given, kind):
        return
    message = (
        f"{function} takes the constants of its theorem as a {kind.__name__}, which "
        f"checks them, but got a {type(given).__name__}. "
    )
    if isinstance(given, Mapping):
        message += f"Write oneproj.theory.{kind.__name__}(**constants)."
    else:
        message += f"Make one: oneproj.theory.{kind.__name__}(weak_convexity=..., ...)."
    raise InvalidScheduleError(message)


def check_schedule(schedule: object) -> None:
    """Refuse what is neither a schedule nor None.

    Example:
        >>> check_schedule(None)
    """
    if not isinstance(schedule, Schedule | None):
        message = (
            f"schedule must be made by oneproj.theory, or None, got {schedule!r}. Make "
            "one from a problem's constants: oneproj.theory.convex_schedule(...)."
        )
        raise InvalidProblemError(message)
