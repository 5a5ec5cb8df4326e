"""The schedules of the three theorems: how long to run, and with which parameters.

Implements the paper's appendix "Shared Schedule and Proofs of the Convex-Constraint
Theorems" (app:convex-schedule) and "Proof of Theorem thm:nonconvex" (app:nc-schedule).
T is a ceiling, K any number that satisfies a scalar inequality.

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

`Schedule.describe` names the paper's equations by their labels in the .tex file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal, get_args

from oneproj.errors import InvalidProblemError, InvalidScheduleError
from oneproj.theory.bounds import convex_inner_error, inner_bound
from oneproj.theory.constants import (
    ConvexConstants,
    NonconvexConstants,
    check_nonconvex_range,
    check_range,
    checked_number,
)

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
        T, K = self.outer_steps, self.inner_steps
        try:
            if isinstance(self.constants, ConvexConstants):
                needed = _convex_draft(self.constants, self.epsilon)
            else:
                lam, beta = self.strength, self.prox_weight
                needed = _nonconvex_draft(self.constants, self.epsilon, lam, beta)
            same = self == needed.with_steps(outer_steps=T, inner_steps=K)
        except InvalidScheduleError:
            return False
        return (
            same
            and self.outer_steps >= needed.outer_steps
            and self.inner_error <= needed.inner_error_target
        )

    def describe(self) -> str:
        """Return a table, one row per number, with the equation it comes from."""
        constants = self.constants
        if isinstance(constants, ConvexConstants):
            rows = _convex_rows(self, constants)
        else:
            rows = _nonconvex_rows(self, constants)
        verdict = _PROMISES[self.setting] if self.within_theorem else _NO_PROMISE
        return "\n".join([_TITLES[self.setting], "", *_aligned(rows), "", verdict])

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
    return _with_inner_steps(_convex_draft(constants, epsilon), inner_steps)


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
    draft = _nonconvex_draft(constants, epsilon, strength, prox_weight)
    return _with_inner_steps(draft, inner_steps)


def _convex_draft(constants: ConvexConstants, epsilon: float) -> Schedule:
    """Return the schedule of eq. cv-schedule and eq. convex-settings, but for K.

    T and e_* are computed on the unit ball, for the target R epsilon.
    """
    eps, R = checked_number("epsilon", epsilon, _WHY_EPSILON), constants.radius
    check_range(eps, R, "<=")
    unit, eps_u = constants.on_unit_ball(), eps * R
    ell, G_F = unit.weak_convexity, unit.proximal_lipschitz
    T = find_outer_steps(1000.0 * ell * unit.gap_bound, eps_u)
    target = min(eps_u * eps_u / (4000.0 * ell), G_F * eps_u / (60.0 * ell))
    ell = constants.weak_convexity
    return _draft(constants, eps, T, target, (constants.strength, 2.0 * ell, ell))


def _nonconvex_draft(
    constants: NonconvexConstants,
    epsilon: float,
    strength: float | None,
    prox_weight: float | None,
) -> Schedule:
    """Return the schedule of eq. nc-schedule, but for K.

    None stands for twice what eq. nc-parameters and the theorem's range ask for.
    """
    eps, R = checked_number("epsilon", epsilon, _WHY_EPSILON), constants.radius
    if strength is None:
        G_f = constants.gradient_bound
        strength = (G_f + max(G_f, 2.0 * eps)) / constants.infeasible_slope
    lam = checked_number("strength", strength, "Try: strength=None.")
    if prox_weight is None:
        rho = constants.penalized_weak_convexity(lam)
        prox_weight = max(2.0 * rho, 2.0 * eps / constants.tube_radius)
    beta = checked_number("prox_weight", prox_weight, "Try: prox_weight=None.")
    check_nonconvex_range(constants, eps, lam, beta)
    m = constants.strong_convexity(lam, beta)
    eps_u, beta_u = eps * R, beta * R * R
    T = find_outer_steps(48.0 * beta_u * constants.gap_bound(lam), eps_u)
    target = eps_u * eps_u / (48.0 * beta_u * (1.0 + beta / m))
    return _draft(constants, eps, T, target, (lam, beta, m))


def _draft(
    constants: ConvexConstants | NonconvexConstants,
    epsilon: float,
    T: int,
    target: float,
    weights: tuple[float, float, float],
) -> Schedule:
    """Return a schedule with K = 2; the weights are lambda, beta and m."""
    strength, prox_weight, m = weights
    convex = isinstance(constants, ConvexConstants)
    return Schedule(
        setting="convex" if convex else "nonconvex",
        epsilon=epsilon,
        outer_steps=T,
        inner_steps=2,
        prox_weight=prox_weight,
        strong_convexity=m,
        penalty="softplus" if convex else "hinge",
        strength=strength,
        smoothing=None,
        first_index=1 if convex else 0,
        inner_failure=1 / (6 * T),
        inner_error_target=target,
        inner_error=math.inf,
        radius=constants.radius,
        constants=constants,
    )


def _with_inner_steps(draft: Schedule, how: InnerSteps) -> Schedule:
    """Find K, the one number that the draft leaves open."""
    K = find_inner_steps(draft._error, draft.inner_error_target, how)  # noqa: SLF001
    return draft.with_steps(inner_steps=K)


_WHY_EPSILON = (
    "epsilon is the target for the stationarity measure; T and K grow like epsilon^-2 "
    "each. Try: a fraction of the measure at the start."
)


def _check_constants(
    function: str, given: object, kind: type[ConvexConstants | NonconvexConstants]
) -> None:
    """Refuse what is not the dataclass of the constants of a theorem."""
    if not isinstance(given, kind):
        message = (
            f"{function} takes the constants of its theorem as a {kind.__name__}, but "
            f"got a {type(given).__name__}. Make one, which checks them: "
            f"oneproj.theory.{kind.__name__}(weak_convexity=..., ...)."
        )
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


_Row = tuple[str, str, float | str, str]  # symbol, meaning, value, source

_HEADER: _Row = ("symbol", "meaning", "value", "from")
_TITLES = {
    "convex": (
        "Schedule for a convex constraint\n"
        "Theorem convex-smooth (Smooth objective with convex constraints)\n"
        "Theorem convex-nonsmooth (Nonsmooth objective with convex constraints)"
    ),
    "nonconvex": (
        "Schedule for a nonconvex constraint\n"
        "Theorem nonconvex (Nonsmooth objective with nonconvex constraints)"
    ),
}
_PROMISES = {
    "convex": (
        "Guarantee: from a feasible start, one projection gives a feasible output "
        "with, at probability\n>= 2/3, G_ell <= epsilon (smooth objective) or "
        "S_ell <= epsilon (nonsmooth objective)."
    ),
    "nonconvex": (
        "Guarantee: from any start in the ball, one projection gives a feasible output "
        "that lies, at\nprobability >= 2/3, within 2 epsilon / beta of a feasible "
        "point with KKT residual <= epsilon\n(eq. nc-guarantee)."
    ),
}
_NO_PROMISE = (
    "OUTSIDE THE THEOREM: these are not the numbers that the equations above ask for; "
    "nothing is\nguaranteed for this run."
)


def _convex_rows(s: Schedule, constants: ConvexConstants) -> list[_Row]:
    """List the numbers of app:convex-schedule in the order they are computed."""
    gap = "2 G_f R, end of app. convex-schedule"
    if constants.initial_gap is not None:
        gap = "given, Delta_f of Theorem convex-smooth"
    G_F, G_H = constants.proximal_lipschitz, constants.subproblem_gradient_bound
    errors = "eq. convex-error-constants"
    U_K = s.inner_error - math.log(2.0) / s.inner_steps
    gamma = "none" if s.smoothing is None else s.smoothing
    return [
        ("epsilon", "target", s.epsilon, "Theorems convex-smooth, convex-nonsmooth"),
        ("R", "radius", s.radius, "Assumption convex, rescaled"),
        ("Delta_f", "initial gap", constants.gap_bound, gap),
        ("G_F", "proximal Lipschitz constant", G_F, errors),
        ("lambda_0", "strength", s.strength, "eq. convex-settings"),
        ("G_H", "subproblem gradient bound", G_H, errors),
        ("beta", "prox weight", s.prox_weight, "2 ell, eq. convex-penalty"),
        ("m", "strong convexity", s.strong_convexity, "ell, eq. convex-penalty"),
        ("T", "outer steps", s.outer_steps, "eq. cv-schedule"),
        ("delta_in", "inner failure", s.inner_failure, "eq. cv-schedule"),
        ("e_*", "inner error target", s.inner_error_target, "eq. cv-schedule"),
        ("K", "inner steps", s.inner_steps, "e_K <= e_*, below eq. cv-schedule"),
        ("U_K", "inner bound", U_K, "Lemma inner, eq. inner-bound"),
        ("e_K", "inner error", s.inner_error, f"U_K + log(2)/K, {errors}"),
        ("gamma", "smoothing", gamma, "1/K, eq. convex-settings"),
        ("I", "index set", _index_set(s), "Theorems convex-smooth, convex-nonsmooth"),
        ("T K", "gradient calls", s.gradient_calls, "eq. convex-smooth-rate"),
    ]


def _nonconvex_rows(s: Schedule, constants: NonconvexConstants) -> list[_Row]:
    """List the numbers of app:nc-schedule in the order they are computed."""
    lam, beta = s.strength, s.prox_weight
    gap = "2 G_lambda R, end of app. nc-schedule"
    if constants.initial_gap is not None:
        gap = "given, Delta_lambda of Theorem nonconvex"
    rho = constants.penalized_weak_convexity(lam)
    G_lam = constants.penalized_lipschitz(lam)
    G_H = constants.subproblem_gradient_bound(lam, beta)
    margin, tube = constants.feasibility_margin(lam), constants.tube_radius
    app = "app. nonconvex"
    return [
        ("epsilon", "target", s.epsilon, "Theorem nonconvex"),
        ("R", "radius", s.radius, "Assumption nonconvex, rescaled"),
        ("lambda", "strength", lam, "eq. nc-parameters"),
        ("h_feas", "feasibility margin", margin, "> epsilon, Lemma nc-transfer"),
        ("R_tube", "tube radius", tube, "> epsilon / beta, Lemma geometry"),
        ("G_lambda", "penalized Lipschitz constant", G_lam, app),
        ("Delta_lambda", "initial gap", constants.gap_bound(lam), gap),
        ("rho_lambda", "penalized weak convexity", rho, app),
        ("beta", "prox weight", beta, "eq. nc-parameters"),
        ("m", "strong convexity", s.strong_convexity, "eq. nc-parameters"),
        ("G_H", "subproblem gradient bound", G_H, app),
        ("T", "outer steps", s.outer_steps, "eq. nc-schedule"),
        ("delta_in", "inner failure", s.inner_failure, "eq. nc-schedule"),
        ("e_*", "inner error target", s.inner_error_target, "eq. nc-schedule"),
        ("K", "inner steps", s.inner_steps, "U_K <= e_*, below eq. nc-schedule"),
        ("U_K", "inner error", s.inner_error, "Lemma inner, eq. inner-bound"),
        ("I", "index set", _index_set(s), "eq. nc-settings"),
        ("T K", "gradient calls", s.gradient_calls, "eq. nc-rate"),
    ]


def _index_set(schedule: Schedule) -> str:
    """Write I as in the paper: {1..T} or {0..T-1}."""
    first, T = schedule.first_index, schedule.outer_steps
    return f"{{{first}..{first + T - 1}}}"


def _aligned(rows: list[_Row]) -> list[str]:
    """Lay the rows out in columns, numbers to the right, sources unpadded."""
    cells = [
        (symbol, meaning, _text(value), source)
        for symbol, meaning, value, source in [_HEADER, *rows]
    ]
    a, b, c = (max(len(row[i]) for row in cells) for i in range(3))
    cells.insert(1, ("-" * a, "-" * b, "-" * c, "-" * len(_HEADER[3])))
    return [f"{s:<{a}}  {w:<{b}}  {v:>{c}}  {e}" for s, w, v, e in cells]


def _text(value: float | str) -> str:
    """Write counts in full and other numbers with six digits."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
