"""Why a run found no feasible point, where the reason is not the constraints.

A projection that fails knows residuals and a distance, and its advice is about bounds.
A term that is random or undefined, or a point that was trained to infinity, leads to
the same residuals, and no bound helps.

What the record of a run tells once it has ended, whatever the method.

**A rise that nothing asks for.** A constraint may force an objective up: one that was
violated at the start, or whose multiplier says so at the end. An objective that ended
at ``RISE`` times what it was at the start, at a point that no constraint holds, was
driven there by steps that were too long, if the start was feasible or a constraint
overshot as well, to ``RISE`` times its value at the start. What is known of the start
is one minibatch, which may be low by chance: where losses are rare and large, most are.
So nearly all minibatches of the second half have to be far above it, and of the size
that the objective has at the end.

**An end that comes too early.** Steps that decay bring every run to rest. One whose
objective was lower by a ``FALL`` in the last quarter of the updates than in the one
before, beyond the noise of minibatches, was stopped by the decay and not by the
problem. It is not said of an objective that is nearly gone: on data that can be
separated a risk falls for ever, and nobody waits for it. Nor of one that is above its
start: the constraints had driven it up, and it came back.

**An end that is worse than the start.** A start that is feasible, such as a model that
was trained under the same constraints, is an answer. Where the run ends infeasible or
with a higher objective, ``solve`` returns the start, or the best feasible anchor.

**An objective that was never seen.** A method that steps on the objective only where
the constraints are met may find them violated at every update. What it returns can be
feasible, and is as good as chance made it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, variance

import torch

from oneproj.errors import InfeasibleError, warn
from oneproj.methods.diagnostics import TRIAL
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.results import KEPT, Projection, Status
from oneproj.training.run import Run
from oneproj.vectors.arithmetic import Vector, norm, rounding_unit

FAR_AWAY = 1e6
"""A run that takes the parameters this many times as far from the origin as they were,
or as 1, diverges."""


@contextmanager
def explained(problem: Problem, start: float) -> Iterator[None]:
    """Put the reason first, if an ``InfeasibleError`` leaves the block and has one.

    Args:
        problem: Whose parameters hold what the updates made.
        start: How long they were before.

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
        reason = _randomness(problem) or _divergence(problem, start)
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


def _divergence(problem: Problem, start: float) -> str:
    """How far the updates went, if that is absurdly far."""
    length = norm(problem.parameters)
    if length <= FAR_AWAY * max(1.0, start):
        return ""
    return (
        f"The updates took the parameters from a length of {start:.3g} to one of "
        f"{length:.3g}: they diverged, and there is little to be found out there. Try "
        "a smaller lr, or a finite radius of the problem, before anything below."
    )


RISE = 5.0
"""Times the size at the start."""
FEW = 0.1
"""Of the late minibatches, which may be low all the same."""
FALL, ERRORS = 0.1, 2.0
"""Of the objective, and in standard errors. At rest, runs were seen to fall by 0.03."""
GONE = 0.01
"""Of the objective at the start: less is nearly nothing."""
FAR = 0.1
"""Of a constraint's bound, or of the size of the parameters: runs that converged were
seen to end within 0.001 of both before the projection."""
PASSES, LONGER = 3, 2
"""Over data that was not seen once, or times the steps: what a warning names."""


def warn_in_hindsight(
    run: Run, objective: float, multipliers: Mapping[str, float], *, planned: bool
) -> None:
    """Warn of what the record of a run shows.

    Args:
        run: That has ended.
        objective: At the answer.
        multipliers: Of the constraints, there.
        planned: Whether it ended as planned; the record says if with all updates.
    """
    setting, record = run.setting, run.history.columns
    warn_if_risen(record, objective, multipliers)
    whole = planned and record["update"][-1:] == [setting.steps]
    if whole and all(map(math.isnan, record["objective"])):
        _warn_of_neglect(setting.steps)
    if whole and setting.schedule is None:
        warn_if_falling(
            record["objective"],
            steps=setting.steps,
            batch_size=setting.batch_size,
            examples=setting.problem.objective.size,
        )


def far_from_feasible(
    projection: Projection, constraints: Mapping[str, AbstractTerm], before: Vector
) -> str:
    """Say that training ended far from feasible, where the projection shows it.

    That is, a constraint exceeded its bound by a share of it, or the projection moved
    the parameters by a share of their size.

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
    over = {
        name: residual
        for name, residual in projection.residuals_before.items()
        if name in constraints and residual > FAR * constraints[name].scale() > 0
    }
    size = norm(before)
    if not over and projection.distance <= FAR * size:
        return ""
    seen = [f"{name!r} was {residual:+.2g}" for name, residual in over.items()]
    moved = f"the projection moved the parameters by {projection.distance:.2g}"
    told = ", ".join([*seen, f"{moved}, their norm was {size:.2g}"])
    return (
        f"training ended far from feasible: {told}; to end nearer, try more steps or a "
        "larger strength"
    )


def _warn_of_neglect(steps: int) -> None:
    message = (
        f"The objective was not minimised: none of the {steps} updates was a step on "
        "it, because a constraint was violated at each. Whatever the projection made "
        "feasible is as good as chance has it. Start from a feasible point "
        "(oneproj.project), or give more steps, a larger lr or a tolerance, or take "
        'method="one-projection".'
    )
    warn(message)


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
    rounding = math.sqrt(rounding_unit(run.setting.problem.parameters))
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
    first = "a good start, as that of a trained model is"
    left = first if status is Status.START else "good points"
    message = (
        f"The answer is {KEPT[status]}, which is feasible: {why}. Steps that are too "
        f"long lead away from {left}. {_shorter(run)}"
    )
    warn(message)


def _shorter(run: Run) -> str:
    """What to try for a run that lost a good start."""
    if run.setting.schedule is not None:
        return "Try the schedule of a smaller epsilon, which makes more updates."
    settings = {**run.settings, **run.method.describe()}
    lr = settings.get("lr") or settings["options"].get("lr")
    if lr is None:
        return 'Try method="one-projection" with a small lr.'
    return (
        f"Try a smaller lr, such as {lr / 10:.1g} (it was {lr:.2g}), more steps, or "
        "features of zero mean and unit variance."
    )


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
    seen = record["objective"]
    if not seen or any(mu > 0 for mu in multipliers.values()):
        return
    overshot = [_overshot(record[name]) for name in multipliers]
    feasible = all(record[name][0] <= 0 for name in multipliers)
    risen = objective > RISE * abs(seen[0]) and _is_beyond_chance(seen, objective)
    if risen and (feasible or any(overshot)):
        message = (
            f"The objective rose from {seen[0]:.3g} at the first update to "
            f"{objective:.3g}, and no constraint asks for it: their multipliers are "
            "all zero. The steps were too long for this problem. Standardise the "
            "features (zero mean, unit variance), or give a smaller lr."
        )
        warn(message)


def _is_beyond_chance(seen: Sequence[float], objective: float) -> bool:
    late = sorted(seen[len(seen) // 2 :])
    low = late[int(FEW * len(late))]
    return low > RISE * abs(seen[0]) and low >= objective / RISE


def _overshot(residuals: Sequence[float]) -> bool:
    return max(residuals) > RISE * abs(residuals[0])


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
    share = late_fall(seen)
    if share is None:
        return
    useful, unseen, n = LONGER * steps, "", examples or 0
    if n > steps * batch_size:
        useful = 100 * math.ceil(PASSES * n / batch_size / 100)
        unseen = f", and updates of {batch_size} examples have not seen all {n} once"
    message = (
        f"The run may have ended too early: in the last quarter of its {steps} updates "
        f"the objective still fell by {share:.0%}{unseen}. Try steps={useful}."
    )
    warn(message)


def late_fall(seen: Sequence[float]) -> float | None:
    """By which share the last quarter is below the one before, if it clearly is.

    Example:
        >>> flat = [1.0 + 0.1 * (k % 2) for k in range(400)]
        >>> late_fall(flat), late_fall([y - 0.002 * k for k, y in enumerate(flat)])
        (None, 0.36...)
    """
    quarter = len(seen) // 4
    if len(seen) < TRIAL:
        return None
    last, before = seen[-quarter:], seen[-2 * quarter : -quarter]
    fall = fmean(before) - fmean(last)
    error = math.sqrt((variance(before) + variance(last)) / quarter)
    clear = fall > max(FALL * abs(fmean(before)), ERRORS * error)
    end, first = fmean(last), seen[0]
    on_its_way = abs(end) >= GONE * abs(first) and end < first
    return fall / abs(fmean(before)) if clear and on_its_way else None
