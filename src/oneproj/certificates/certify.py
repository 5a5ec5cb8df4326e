"""``oneproj.certify``: what holds at the point that the parameters hold now."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from oneproj.arguments import check_flag, check_generator
from oneproj.certificates.assumptions import examine, infeasible_slope
from oneproj.certificates.kkt import (
    ball_measure,
    complementarity,
    feasibility,
    gradient_mapping,
    kkt_residual,
    surrogate_measure,
)
from oneproj.certificates.proximal import moreau_residual, penalty_residual
from oneproj.distributed import agreeing, compares_ranks
from oneproj.errors import InvalidProblemError, NonFiniteError, ProjectionFailed
from oneproj.problem.autograd import fresh_casts
from oneproj.problem.problem import Problem, check_problem, problem_facts
from oneproj.projection.base import AbstractProjector
from oneproj.projection.project import ProjectorLike, choose_projector
from oneproj.results import Certificate, Measure
from oneproj.theory import ConvexConstants, NonconvexConstants, Schedule
from oneproj.theory.constants import Observations
from oneproj.theory.schedules import check_schedule

Constants = ConvexConstants | NonconvexConstants


def certify(
    problem: Problem,
    *,
    constants: Constants | None = None,
    schedule: Schedule | None = None,
    projector: ProjectorLike | None = None,
    smooth: bool = True,
    projected: bool = True,
    generator: torch.Generator | None = None,
) -> Certificate:
    """Certify the point that the parameters hold now; they do not change.

    Whatever method found the point, this computes:

    - always: feasibility on all data, the KKT residual with its multipliers, and their
      complementarity; the excess over the safeguard ball if the point is outside. In a
      convex problem a feasible x is then proved to be no worse than any feasible z by
      more than ``residual |x - z| + complementarity`` (see ``kkt_residual``). The
      multiplier of a closed-form set is the length of its normal: how fast the
      objective would fall if the set grew, per unit of distance;
    - with ``ConvexConstants``: the Moreau residual S_ell, and the gradient mapping
      G_ell if the objective is ``smooth`` and a ``projector`` is given;
    - with ``NonconvexConstants``: the penalty residual R and its witness, for the
      strength and prox weight of the ``schedule`` (or of its defaults), and the check
      of the infeasible slope if a ``generator`` is given.

    **Bounds.** A schedule adds the theorem's bound to the value. Each theorem is about
    one point and holds with probability at least 2/3: Theorems 1 and 2 bound G_ell and
    S_ell by epsilon at the output x_hat = P_C(x_J); Theorem 3 bounds R by epsilon at
    x_J, before the projection. At x_hat this leaves ``R <= (2 + beta/m) epsilon``:
    x_hat is at most R(x_J)/beta from x_J (lem:nc-transfer), and Q is
    beta/m-Lipschitz. ``projected`` says which of the two points is judged.

    **Withdrawal.** The assumptions of the theorem are tested at a few points
    (``certificates.assumptions``), which cannot prove them but may refute them. Then no
    bound is stated, and ``Certificate.withdrawn`` says what is assumed and what was
    seen.

    **Cost.** Without constants, one gradient of the objective and of every constraint
    and a pass or two over the constraints' data. The measures of a theorem take tens to
    hundreds of gradients more: they are counted in each measure's ``details``.

    Args:
        problem: Evaluated on all data.
        constants: What is claimed about it; those of the schedule when left out.
        schedule: The schedule whose guarantee is to be compared.
        projector: A name or an ``AbstractProjector``, for the gradient mapping, which
            takes one more projection.
        smooth: Whether the objective has an ell-Lipschitz gradient.
        projected: True for the output x_hat, False for the selected iterate x_J.
        generator: For the samples of the slope check.

    In a process group of ``torch.distributed`` with more than one rank, every rank has
    to make this call with the same parameters and all of the data. They are compared.

    Raises:
        InvalidProblemError: The constants belong to a ball of another radius, or have
            no use for the projector or the generator that was given, or no gradient
            can be taken (``torch.inference_mode()``), or the ranks of a process group
            differ.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([0.6, 0.8], dtype=torch.float64, requires_grad=True)
        >>> target = torch.tensor([3.0, 4.0], dtype=torch.float64)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        ...     {"size": oneproj.function(lambda: w.square().sum()) <= 1.0}, radius=2.0)
        >>> claims = oneproj.theory.ConvexConstants(
        ...     weak_convexity=1.0, gradient_bound=7.0, constraint_gradient_bound=4.0,
        ...     boundary_slope=2.0, radius=2.0)
        >>> certificate = certify(problem, constants=claims)
        >>> certificate.holds, round(certificate.multipliers["size"], 6)
        (True, 2.0)
        >>> certificate["Moreau residual"].value < 1e-6
        True
    """
    check_flag("smooth", smooth, "It says whether grad f is ell-Lipschitz.")
    check_flag("projected", projected, "It says which point of a run is judged.")
    check_generator(generator, "It draws the samples of the slope check.")
    check_schedule(schedule)
    _agree(problem)
    constants = _checked_constants(problem, constants, schedule)
    chosen = None
    if projector is not None:
        chosen = choose_projector(projector, problem.constraints)
    _check_used(constants, chosen, generator)
    with fresh_casts():
        measures = _measures(
            problem,
            constants,
            schedule,
            chosen if smooth else None,
            projected=projected,
        )
        if generator is not None and isinstance(constants, NonconvexConstants):
            claimed = constants.infeasible_slope
            measures.append(infeasible_slope(problem, generator, claimed=claimed))
        return _certificate(problem, measures, schedule, None)


def certify_run(
    problem: Problem,
    observed: Observations | None,
    schedule: Schedule | None,
    judged: Measure | None = None,
) -> Certificate:
    """Certify the output of a run, with what the run saw of the schedule's claims.

    Args:
        problem: Holds the output.
        observed: Of a run with a schedule.
        schedule: That was executed to its end.
        judged: The ``feasibility`` of this very point, where that is known already.
    """
    _agree(problem)
    constants = _checked_constants(problem, None, schedule)
    with fresh_casts():
        measures = _measures(problem, constants, schedule, None, judged, projected=True)
        return _certificate(problem, measures, schedule, observed)


def _agree(problem: Problem) -> None:
    """Check the problem, and that it is the same on every rank of a process group."""
    with agreeing("oneproj.certify") as facts:
        check_problem(problem)
        if compares_ranks():
            facts.update(problem_facts(problem))


def _checked_constants(
    problem: Problem, constants: object, schedule: Schedule | None
) -> Constants | None:
    """Return the constants to judge by, which must be those of this ball."""
    if not isinstance(constants, Constants | None):
        message = (
            "constants must be a ConvexConstants or NonconvexConstants of "
            f"oneproj.theory, or None, got {constants!r}. They say which theorem's "
            "measures to compute."
        )
        raise InvalidProblemError(message)
    if schedule is not None:
        if constants not in (None, schedule.constants):
            message = (
                "The schedule was computed from other constants than those given, so "
                "its bound says nothing about them. Pass one of the two."
            )
            raise InvalidProblemError(message)
        constants = schedule.constants
    if constants is not None and constants.radius != problem.radius:
        message = (
            f"The constants are for a ball of radius {constants.radius}, but the "
            f"problem has radius {problem.radius}. They are suprema over the ball: "
            "build them with the problem's radius."
        )
        raise InvalidProblemError(message)
    return constants


def _check_used(
    constants: Constants | None,
    projector: AbstractProjector | None,
    generator: torch.Generator | None,
) -> None:
    """Refuse arguments that only the constants of the other setting would use."""
    for given, use, kind in (
        (projector, "A projector is for the gradient mapping", ConvexConstants),
        (generator, "A generator is for the slope check", NonconvexConstants),
    ):
        if given is not None and not isinstance(constants, kind):
            name = None if constants is None else type(constants).__name__
            message = (
                f"{use}, which is computed where constants is a {kind.__name__}; it is "
                f"{name}. Leave it out, or give those constants."
            )
            raise InvalidProblemError(message)


def _measures(
    problem: Problem,
    constants: Constants | None,
    schedule: Schedule | None,
    projector: AbstractProjector | None,
    judged: Measure | None = None,
    *,
    projected: bool,
) -> list[Measure]:
    """Return what always applies, and the measures that the constants ask for."""
    kkt = kkt_residual(problem)
    found = [
        judged or feasibility(problem),
        *surrogate_measure(problem),
        *ball_measure(problem),
        kkt,
        complementarity(kkt),
    ]
    if isinstance(constants, ConvexConstants):
        given, ell = schedule if projected else None, constants.weak_convexity
        if projector is not None:
            mapping = partial(gradient_mapping, problem, projector, weak_convexity=ell)
            measure = _attempt("gradient mapping", mapping)
            found.append(_compared(measure, given, "Theorem 1 at x_hat"))
        residual = partial(moreau_residual, problem, weak_convexity=ell)
        measure = _attempt("Moreau residual", residual)
        found.append(_compared(measure, given, "Theorem 2 at x_hat"))
    elif constants is not None:
        found.append(
            _penalty_residual(problem, constants, schedule, projected=projected)
        )
    return found


def _attempt(name: str, compute: Callable[[], Measure]) -> Measure:
    """Return a measure; infinite, with the reason, where it cannot be computed."""
    try:
        return compute()
    except ProjectionFailed as error:
        source, details = "could not be computed", {"failure": str(error)}
        return Measure(name, math.inf, source=source, details=details)


def _penalty_residual(
    problem: Problem,
    constants: NonconvexConstants,
    schedule: Schedule | None,
    *,
    projected: bool,
) -> Measure:
    """Return the penalty residual, with the bound for the point that is judged."""
    if schedule is None:  # twice the least strength and prox weight of the theorem
        lam = 2.0 * constants.gradient_bound / constants.infeasible_slope
        beta = 2.0 * constants.penalized_weak_convexity(lam)
    else:
        lam, beta = schedule.strength, schedule.prox_weight
    found = penalty_residual(problem, constants, strength=lam, prox_weight=beta)
    if not projected:
        return _compared(found, schedule, "Theorem 3 at x_J")
    which = "Theorem 3 and lem:nc-transfer at x_hat"
    factor = 2.0 + beta / constants.strong_convexity(lam, beta)
    return _compared(found, schedule, which, factor)


def _compared(
    measure: Measure, schedule: Schedule | None, which: str, factor: float = 1.0
) -> Measure:
    """Add the theorem's bound, where there is a schedule."""
    if schedule is None:
        return measure
    inside, outside = ", probability >= 2/3", "; this schedule is outside it"
    source = which + (inside if schedule.within_theorem else outside)
    details = {**measure.details, "theorem": which.split(" at ", maxsplit=1)[0]}
    bound = factor * schedule.epsilon
    return replace(measure, bound=bound, source=source, details=details)


def _certificate(
    problem: Problem,
    measures: list[Measure],
    schedule: Schedule | None,
    observed: Observations | None,
) -> Certificate:
    """Return the certificate, without the bounds of theorems that are refuted."""
    judged: list[Measure] = []
    withdrawn: list[str] = []
    refuted, counts = list[str](), dict[str, int]()
    if schedule is not None:
        refuted, counts = examine(problem, schedule.constants, observed)
    for measure in measures:
        if math.isnan(measure.value):
            quantity = f"the {measure.name}"
            raise NonFiniteError(quantity)
        theorem, changes = measure.details.get("theorem"), dict[str, Any]()
        if theorem is not None:
            reasons = [f"{theorem} assumes {reason}" for reason in refuted]
            if "violation" in measure.details:
                reasons.append(f"{theorem} is refuted: {measure.details['violation']}")
            if reasons:
                changes = {"bound": None, "source": f"withdrawn: {reasons[0]}"}
            changes["details"] = {**measure.details, "assumption tests": counts}
            withdrawn += reasons
        judged.append(replace(measure, **changes))
    multipliers = {m.name: m for m in judged}["KKT residual"].details["multipliers"]
    return Certificate(tuple(judged), multipliers, tuple(withdrawn))
