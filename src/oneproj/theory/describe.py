"""A schedule as a table: every number with the equation it comes from.

Sources are the paper's theorem and lemma names and equation labels, so that a reader
finds each in the .tex file: "eq. cv-schedule" is labelled eq:cv-schedule, "Lemma inner"
(Strongly convex stochastic subgradient subroutine) lem:inner, and so on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oneproj.theory.constants import ConvexConstants, NonconvexConstants

if TYPE_CHECKING:
    from oneproj.theory.schedules import Schedule

_Row = tuple[str, str, float | str, str]  # symbol, meaning, value, source

_HEADER: _Row = ("symbol", "meaning", "value", "from")
_TITLE = {
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
_PROMISE = {
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


def describe_schedule(schedule: Schedule) -> str:
    """Return the table behind `Schedule.describe`: title, rows, what is guaranteed."""
    constants = schedule.constants
    if isinstance(constants, ConvexConstants):
        rows = _convex_rows(schedule, constants)
    else:
        rows = _nonconvex_rows(schedule, constants)
    setting = schedule.setting
    verdict = _PROMISE[setting] if schedule.within_theorem else _NO_PROMISE
    return "\n".join([_TITLE[setting], "", *_aligned(rows), "", verdict])


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
    lines = [f"{s:<{a}}  {w:<{b}}  {v:>{c}}  {e}" for s, w, v, e in cells]
    rule = f"{'-' * a}  {'-' * b}  {'-' * c}  {'-' * len(_HEADER[3])}"
    return [lines[0], rule, *lines[1:]]


def _text(value: float | str) -> str:
    """Write counts in full and other numbers with six digits."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
