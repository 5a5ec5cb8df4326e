"""What the record of a run shows once it has ended, whatever the method.

- **No feasible point** for a reason that no bound mends: a constraint is random, or the
  updates diverged (``explained``).
- **A rise that no constraint asks for**: the objective ended far above its start and
  all multipliers are zero, so the steps were too long. The start is known from one
  minibatch only, so nearly all late minibatches have to be far above it as well.
- **An end that comes too early**: in the last quarter of the updates the objective was
  still falling, beyond the noise of minibatches. Not if it is nearly zero, or above its
  start because constraints drove it up.
- **An end that is worse than a feasible start**: ``solve`` returns the start.
- **An objective that no update stepped on**, since a constraint was always violated.
- **A training that ended far from feasible** (``far_from_feasible``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, variance

import torch

from oneproj.errors import InfeasibleError, warn
from oneproj.methods.diagnostics import THRESHOLDS as DURING_A_RUN
from oneproj.problem.modes import has_statistics
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.results import KEPT, Projection, Status
from oneproj.training.run import Run
from oneproj.vectors.arithmetic import Vector, norm, rounding_unit


@dataclass(frozen=True)
class Thresholds:
    """From where on something is worth a warning; benchmarks/NOTES.md has the sources.

    Attributes:
        diverged: Final norm of the parameters over their first one, or over 1.
        rise: Final objective over the first one.
        low_share: Share of the second half's minibatches that may be low all the same.
        fall: Share by which the objective falls in the last quarter.
        standard_errors: By which that fall exceeds the noise, in standard errors.
        nearly_zero: Share of the first objective that is not worth more updates.
        far: Residual over the bound, or move over the parameters' norm.
    """

    diverged: float = 1e6
    rise: float = 5.0
    low_share: float = 0.1
    fall: float = 0.1
    standard_errors: float = 2.0
    nearly_zero: float = 0.01
    far: float = 0.1


LIMITS = Thresholds()


@contextmanager
def explained(problem: Problem, start: float) -> Iterator[None]:
    """Put the reason first, if an ``InfeasibleError`` leaves the block and has one.

    Args:
        problem: Whose parameters hold what the updates made.
        start: The norm of the parameters before.

    Raises:
        NonFiniteError: In place of it, if a constraint is NaN or infinite by then.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> _ = w.data.mul_(1e9)
        >>> with explained(problem, start=1.0):
        ...     raise InfeasibleError("A residual is > 0.")
        Traceback (most recent call last):
        ...
        oneproj.errors.InfeasibleError: The updates took the parameters from a length...
    """
    try:
        yield
    except InfeasibleError as error:
        reason, length = _randomness(problem), norm(problem.parameters)
        if not reason and length > LIMITS.diverged * max(1.0, start):
            reason = (
                f"The updates took the parameters from a length of {start:.3g} to one "
                f"of {length:.3g}: they diverged, and there is little to be found out "
                "there. Try a smaller lr, or a finite radius of the problem, before "
                "anything below."
            )
        if not reason:
            raise
        message = f"{reason} {error}"
        raise InfeasibleError(message) from error


def _randomness(problem: Problem) -> str:
    """Which constraint gives two values at one point, if one does."""
    once, twice = problem.residuals(), problem.residuals()
    noise = math.sqrt(max(torch.finfo(p.dtype).eps for p in problem.parameters))
    for name, constraint in problem.constraints.items():
        bound = constraint.bound if isinstance(constraint, Constraint) else 0.0
        size = abs(once[name]) + abs(bound)
        if abs(once[name] - twice[name]) > noise * size:
            return (
                f"The constraint {name!r} is random: at one and the same point its "
                f"residual was {once[name]:.6g}, then {twice[name]:.6g}. No search can "
                "end by such values, and a looser bound need not help. Draw the noise "
                "once, before the run, and average the constraint over those draws; "
                "for dropout, pass oneproj.Problem(..., model=model)."
            )
    return ""


def warn_of_record(
    run: Run, objective: float, multipliers: Mapping[str, float], *, planned: bool
) -> None:
    """Warn of what the record of a run shows.

    Args:
        run: That has ended.
        objective: At the answer.
        multipliers: Of the constraints, there.
        planned: Whether it ended as planned; the record says if with all updates.
    """
    context, record = run.context, run.history.columns
    warn_if_risen(record, objective, multipliers)
    if not planned or record["update"][-1:] != [context.steps]:
        return
    if all(map(math.isnan, record["objective"])):
        message = (
            f"The objective was not minimised: none of the {context.steps} updates was "
            "a step on it, because a constraint was violated at each. The projection "
            "made a point feasible that nothing made good. Start from a feasible point "
            "(oneproj.project), or give more steps, a larger lr or a tolerance, or "
            'take method="one-projection".'
        )
        warn(message)
    if context.schedule is None:
        warn_if_falling(
            record["objective"],
            steps=context.steps,
            batch_size=context.batch_size,
            examples=context.problem.objective.size,
        )


def far_from_feasible(
    projection: Projection, constraints: Mapping[str, AbstractTerm], before: Vector
) -> str:
    """Say that training ended far from feasible, where the projection shows it.

    That is, a constraint exceeded its bound by a share of it, or the projection moved
    the parameters by a share of their norm.

    Args:
        projection: The one at the end, which succeeded.
        constraints: By name.
        before: The parameters that training ended with.

    Example:
        >>> import torch
        >>> from oneproj.results import Status
        >>> done = Projection(Status.FEASIBLE, 0.5, {}, {}, 3)
        >>> far_from_feasible(done, {}, [torch.ones(1)])
        'training ended far from feasible: the projection moved ... strength'
    """
    far, size = LIMITS.far, norm(before)
    over = [
        f"{name!r} was {residual:+.2g}"
        for name, residual in projection.residuals_before.items()
        if name in constraints and residual > far * constraints[name].scale() > 0
    ]
    if not over and projection.distance <= far * size:
        return ""
    over += [f"the projection moved the parameters by {projection.distance:.2g}"]
    return (
        f"training ended far from feasible: {', '.join(over)}, their norm was "
        f"{size:.2g}; to end nearer, try more steps or a larger strength"
    )


def warn_of_kept(
    run: Run, projection: Projection, reached: float, status: Status, kept: float
) -> None:
    """Warn that the answer is an earlier point, unless all that differs is rounding.

    Args:
        run: That has ended.
        projection: That was made at its end.
        reached: The objective after it, on all data.
        status: That of the answer: START or EARLIER.
        kept: The objective of the answer.
    """
    rounding = math.sqrt(rounding_unit(run.context.problem.parameters))
    if not projection.status.ok:
        name, worst = max(projection.residuals.items(), key=lambda item: item[1])
        why = (
            f"no feasible point was found from where the run ended: the residual of "
            f"{name!r} was still {worst:.3g} after the projection. The objective of "
            f"{KEPT[status]} is {kept:.4g}"
        )
    elif reached > kept + rounding * abs(kept):
        why = f"the run ended with a higher objective, {reached:.4g} after {kept:.4g}"
    else:
        return
    settings = {**run.settings, **run.method.describe()}
    lr = settings.get("lr") or (settings["options"] or {}).get("lr")
    advice = 'Try method="one-projection" with a small lr.'
    if run.context.schedule is not None:
        advice = "Try the schedule of a smaller epsilon, which makes more updates."
    elif lr is not None:
        advice = (
            f"Try a smaller lr, such as {lr / 10:.1g} (it was {lr:.2g}), more steps, "
            "or features of zero mean and unit variance."
        )
    model = run.context.problem.model
    modules = () if model is None else model.modules()
    if any(m.training and has_statistics(m) for m in modules):
        advice += (
            " The model has batch norm in training mode, and its statistics moved with "
            "the run: for a model that is trained already, call model.eval() first."
        )
    first = "a good start, as that of a trained model is"
    left = first if status is Status.START else "good points"
    message = (
        f"The answer is {KEPT[status]}, which is feasible: {why}. Steps that are too "
        f"long lead away from {left}. {advice}"
    )
    warn(message)


def warn_if_risen(
    record: Mapping[str, Sequence[float]],
    objective: float,
    multipliers: Mapping[str, float],
) -> None:
    """Warn of an objective that is far above its start, held there by nothing.

    Args:
        record: The objective and each constraint at every recorded update.
        objective: At the answer.
        multipliers: Of the constraints, there.
    """
    seen, rise = record["objective"], LIMITS.rise
    if not seen or any(mu > 0 for mu in multipliers.values()):
        return
    residuals = [record[name] for name in multipliers]
    overshot = any(max(each) > rise * abs(each[0]) for each in residuals)
    feasible = all(each[0] <= 0 for each in residuals)
    late = sorted(seen[len(seen) // 2 :])
    low = late[int(LIMITS.low_share * len(late))]
    risen = min(objective, low) > rise * abs(seen[0]) and low >= objective / rise
    if risen and (feasible or overshot):
        message = (
            f"The objective rose from {seen[0]:.3g} at the first update to "
            f"{objective:.3g}, and no constraint asks for it: their multipliers are "
            "all zero. The steps were too long for this problem. Standardise the "
            "features (zero mean, unit variance), or give a smaller lr."
        )
        warn(message)


def warn_if_falling(
    seen: Sequence[float], *, steps: int, batch_size: int, examples: int | None
) -> None:
    """Warn of a run whose objective was still falling when it ended.

    Args:
        seen: The objective at every recorded update, all planned ones.
        steps: Updates that were made.
        batch_size: Examples of each.
        examples: Of the objective; None for one that is no mean.
    """
    quarter = len(seen) // 4
    if len(seen) < DURING_A_RUN.planned:
        return
    last, before = seen[-quarter:], seen[-2 * quarter : -quarter]
    end, fall = fmean(last), fmean(before) - fmean(last)
    error = math.sqrt((variance(before) + variance(last)) / quarter)
    least = max(LIMITS.fall * abs(fmean(before)), LIMITS.standard_errors * error)
    nearly_zero = abs(end) < LIMITS.nearly_zero * abs(seen[0])
    if not fall > least or nearly_zero or not end < seen[0]:
        return
    useful, unseen, n = 2 * steps, "", examples or 0
    if n > steps * batch_size:  # three passes over the data, in hundreds of updates
        useful = 100 * math.ceil(3 * n / batch_size / 100)
        unseen = f", and updates of {batch_size} examples have not seen all {n} once"
    message = (
        f"The run may have ended too early: in the last quarter of its {steps} updates "
        f"the objective still fell by {fall / abs(fmean(before)):.0%}{unseen}. Try "
        f"steps={useful}."
    )
    warn(message)
