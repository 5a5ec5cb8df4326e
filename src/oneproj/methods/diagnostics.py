"""Warnings: what a run shows while it goes on, and once it has ended.

While Algorithm 1 runs, ``RunDiagnostics`` collects its objectives and gradients:

- **Features in units of very different size.** A step of Adam changes every parameter
  by about lr, whatever its gradient. A feature in the thousands then moves the score a
  thousand times as far as its neighbours do, and the objective rises to many times its
  size. The first gradient shows such features: the gradient of a weight is proportional
  to what it multiplies, so the columns of a matrix of weights have the sizes of the
  features. A feature that has nothing to do with the target makes a small column, too,
  and the noise of minibatches lets the objective rise, so the first rise decides: if
  units are the cause, the gradient there is uneven as well. Shorter steps for such
  columns do not help: the data has to be standardised.
- **A dead network.** Where no ReLU lets anything through, a network is a constant, all
  but its last bias has no gradient, and the point looks stationary. Whole tensors
  count: single entries may be zero where features are sparse.

Once a run has ended, whatever the method:

- **No feasible point** for a reason that no bound mends: a constraint is random, or the
  updates diverged (``explained``).
- **An end that comes too early**: in the last quarter of the updates the objective was
  still falling, beyond the noise of minibatches. Not if it is nearly zero, or above its
  start because constraints drove it up.
- **An end that is worse than a feasible start**: ``solve`` returns the start, or with
  a schedule says that it was better (``remark_on_end``).
- **An objective that no update stepped on**, since a constraint was always violated.
- **A training that ended far from feasible** (``far_from_feasible``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import InfeasibleError, warn
from oneproj.methods.base import Context
from oneproj.problem.modes import has_statistics
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.results import KEPT, Projection, Status
from oneproj.schema import Resumable
from oneproj.vectors.arithmetic import (
    Vector,
    dimension,
    norm,
    rounding_unit,
)


@dataclass(frozen=True)
class Thresholds:
    """When to warn. The numbers separate what was seen on benchmark problems.

    benchmarks/NOTES.md has the sources.

    Example:
        >>> Thresholds().planned
        100
    """

    column_ratio: float = 12.0
    """Uneven units: a column over the median. Standardised features make 4, sparse 10.
    """
    pair_ratio: float = 144.0
    """Over the smaller of two columns: chance makes 12 in one pair of ten."""
    column_effect: float = 0.1
    """Change of the objective by one step in such a column, as a share of it."""
    swing: float = 2.0
    """Objective over its least value so far."""
    swing_share: float = 0.2
    """That rise, as a share of the first objective. Raw features make 0.2 to 1.7."""
    alive: float = 0.5
    """Dead network: least share of parameters in tensors with a gradient, at first."""
    dead: float = 0.05
    """Largest share of them at the end."""
    planned: int = 100
    """Updates: who plans fewer tries something out."""
    diverged: float = 1e6
    """Final norm of the parameters over their first one, or over 1."""
    fall: float = 0.1
    """Share by which the objective falls in the last quarter."""
    standard_errors: float = 2.0
    """By which that fall exceeds the noise, in standard errors."""
    nearly_zero: float = 0.01
    """Share of the first objective that is not worth more updates."""
    far: float = 0.1
    """Residual over the bound, or move over the parameters' norm."""


LIMITS = Thresholds()


class RunDiagnostics(Resumable):
    """Collects objectives and their gradients, and warns of what they show.

    Example:
        >>> diagnostics = RunDiagnostics()
        >>> diagnostics.add_gradient(1.0, [torch.ones(40)], lr=0.1)
        >>> diagnostics.add_gradient(1.0, [torch.zeros(40)], lr=0.1)
        >>> diagnostics.is_dead
        True
    """

    STATE = ("_first_share", "_last_share", "_lowest", "_scale")

    def __init__(self) -> None:
        """Begin without observations."""
        # Shares of the parameters that have a gradient, at the first and last centre.
        self._first_share: float | None = None
        self._last_share = 1.0
        # Only where columns are uneven, until the first swing: the lowest objective so
        # far, and the size of the first.
        self._lowest: float | None = None
        self._scale = 0.0

    def add_gradient(self, objective: float, gradient: Vector, lr: float) -> None:
        """Take the gradient at a centre into account; the first shows the units."""
        share = _share_with_gradient(gradient)
        if self._first_share is None:
            self._first_share = share
            if are_uneven(objective, gradient, lr):
                self._lowest, self._scale = objective, abs(objective)
        self._last_share = share if objective != 0 else 1.0  # it may be solved

    def add_objective(self, objective: float, gradient: Vector, lr: float) -> None:
        """Take an update into account; warn if units make the objective swing.

        The first swing decides. If its gradient is even, the noise of minibatches makes
        such swings, and later ones prove nothing.
        """
        if self._lowest is None:
            return
        self._lowest = min(self._lowest, objective)
        rise = objective - self._lowest
        if (
            objective > LIMITS.swing * self._lowest
            and rise > LIMITS.swing_share * self._scale
        ):
            self._lowest = None
            if are_uneven(objective, gradient, lr):
                _warn_of_units()

    def warn_if_dead(self) -> None:
        """Warn of a network in which nearly all gradients have gone."""
        if self.is_dead:
            _warn_of_death(self._first_share or 0.0, self._last_share)

    @property
    def is_dead(self) -> bool:
        """Whether nearly all gradients have gone, and the objective has not."""
        first = self._first_share or 0.0
        return first >= LIMITS.alive and self._last_share <= LIMITS.dead


def are_uneven(objective: float, gradient: Vector, lr: float) -> bool:
    """Whether a matrix of weights has columns of very different size.

    Example:
        >>> weight, bias = torch.tensor([[1.0, 2.0, 500.0]]), torch.tensor([0.5])
        >>> are_uneven(20.0, [weight, bias], lr=0.1), are_uneven(20.0, [bias], lr=0.1)
        (True, False)
    """
    return any(_is_uneven(part, lr, abs(objective)) for part in gradient)


def _is_uneven(gradient: Tensor, lr: float, size: float) -> bool:
    if gradient.ndim != 2:  # noqa: PLR2004 - a matrix
        return False
    columns = gradient.square().mean(0).sqrt()
    columns = columns[columns > 0]
    if columns.numel() == 0:
        return False
    spread = LIMITS.column_ratio if columns.numel() > 2 else LIMITS.pair_ratio  # noqa: PLR2004 - two of them
    largest = columns.max().item()
    return (
        largest >= spread * columns.median().item()
        and lr * largest >= LIMITS.column_effect * size
    )


def _warn_of_units() -> None:
    message = (
        "The features seem to come in units of very different size: the gradients of "
        f"some weights were more than {LIMITS.column_ratio:.0f} times those of "
        "their neighbours, and the objective swings, since steps of one length suit "
        "only some of them. It may end far too high. Standardise the features (zero "
        "mean, unit "
        'variance), or, for a small model, take method="auto": SLSQP has '
        "no steps of one length."
    )
    warn(message)


def _warn_of_death(first: float, last: float) -> None:
    message = (
        f"The network seems to be dead: at the end only {100 * last:.1g} percent of "
        f"the parameters had a gradient, at the start {100 * first:.0f}. If no ReLU "
        "lets anything through, the model is a constant, and the small KKT residual of "
        "such a point says nothing. Standardise the features, give a smaller lr, or "
        "use an activation with a slope everywhere, such as GELU."
    )
    warn(message)


def _share_with_gradient(gradient: Vector) -> float:
    found = sum(part.numel() for part in gradient if torch.count_nonzero(part))
    return found / max(1, dimension(gradient))


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
    context: Context,
    record: Mapping[str, Sequence[float]],
    *,
    planned: bool,
) -> None:
    """Warn of what the record of a run shows.

    Args:
        context: Of the run, which has ended.
        record: The history of the run: the objective and each constraint, by update.
        planned: Whether it ended as planned; the record says if with all updates.
    """
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
            saved=context.saved,
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
        f"{size:.2g}; to end nearer, try more steps, a larger lr or a larger strength"
    )


def remark_on_end(
    context: Context, projection: Projection, reached: float, start: float | None
) -> str:
    """What to say of a run whose answer is what it ended with, projected.

    Args:
        context: Of the run, which has ended.
        projection: The one at its end, which succeeded.
        reached: The objective after it, on all data.
        start: That of the start; None where the start was infeasible.
    """
    told, scheduled = [], context.schedule is not None
    if scheduled and start is not None and _is_higher(reached, start, context):
        told.append(
            f"the start was feasible and its objective lower, {start:.4g} against "
            f"{reached:.4g}: with a schedule the answer is that of Algorithm 1 all the "
            "same"
        )
    if before := context.unprojected:
        constraints = context.problem.constraints
        told.append(far_from_feasible(projection, constraints, before))
    return "; ".join(filter(None, told))


def _is_higher(reached: float, kept: float, context: Context) -> bool:
    """Whether an objective is higher than another by more than rounding."""
    rounding = math.sqrt(rounding_unit(context.problem.parameters))
    return reached > kept + rounding * abs(kept)


def warn_of_kept(
    context: Context,
    settings: Mapping[str, Any],
    projection: Projection,
    *,
    reached: float,
    status: Status,
    kept: float,
) -> None:
    """Warn that the answer is an earlier point, unless all that differs is rounding.

    Args:
        context: Of the run, which has ended.
        settings: Of the run, with what the method chose.
        projection: That was made at its end.
        reached: The objective after it, on all data.
        status: That of the answer: START or EARLIER.
        kept: The objective of the answer.
    """
    if not projection.status.ok:
        name, worst = max(projection.residuals.items(), key=lambda item: item[1])
        why = (
            f"no feasible point was found from where the run ended: the residual of "
            f"{name!r} was still {worst:.3g} after the projection. The objective of "
            f"{KEPT[status]} is {kept:.4g}"
        )
    elif _is_higher(reached, kept, context):
        why = f"the run ended with a higher objective, {reached:.4g} after {kept:.4g}"
    else:
        return
    lr = settings.get("lr") or (settings["options"] or {}).get("lr")
    advice = 'Try method="one-projection" with a small lr.'
    if context.schedule is not None:
        advice = "Try the schedule of a smaller epsilon, which makes more updates."
    elif lr is not None:
        advice = (
            f"Try a smaller lr, such as {lr / 10:.1g} (it was {lr:.2g}), more steps, "
            "or features of zero mean and unit variance."
        )
    model = context.problem.model
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


def warn_if_falling(
    objectives: Sequence[float],
    *,
    steps: int,
    batch_size: int,
    examples: int | None,
    saved: bool = False,
) -> None:
    """Warn of a run whose objective was still falling when it ended.

    Args:
        objectives: At every recorded update, all planned ones.
        steps: Updates that were made.
        batch_size: Examples of each.
        examples: Of the objective; None for one that is no mean.
        saved: Whether there is a checkpoint, which keeps its number of updates.
    """
    quarter = len(objectives) // 4
    if len(objectives) < LIMITS.planned:
        return
    last, before = objectives[-quarter:], objectives[-2 * quarter : -quarter]
    end, fall = fmean(last), fmean(before) - fmean(last)
    error = math.sqrt((variance(before) + variance(last)) / quarter)
    least = max(LIMITS.fall * abs(fmean(before)), LIMITS.standard_errors * error)
    nearly_zero = abs(end) < LIMITS.nearly_zero * abs(objectives[0])
    if not fall > least or nearly_zero or not end < objectives[0]:
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
    if saved:
        message += (
            " That is a new run, with another checkpoint: the step sizes are planned "
            "for all updates, so this one cannot be extended."
        )
    warn(message)
