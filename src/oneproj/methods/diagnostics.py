"""Warnings: what a run shows while it goes on, and once it has ended.

While Algorithm 1 runs, ``RunDiagnostics`` collects its objectives and gradients:

- **Features in units of very different size.** A step of Adam changes every parameter
  by about lr, whatever its gradient. A feature in the thousands then moves the score a
  thousand times as far as its neighbours do, and the objective rises to many times its
  size. The first gradient shows such features: the gradient of a weight is proportional
  to what it multiplies, so the columns of a matrix of weights have the sizes of the
  features. Shorter steps for such columns do not help: the data has to be standardised.
- **A dead network.** Where no ReLU lets anything through, a network is a constant, all
  but its last bias has no gradient, and the point looks stationary. Whole tensors
  count: single entries may be zero where features are sparse.
- **Steps too short for the distance.** After N steps of Adam no parameter has moved by
  more than ``sum_k lr_k``. A parameter that went most of that distance was pulled in
  one direction all the time; if the objective is not nearly zero by then, the run ended
  before it arrived.

Once a run has ended, whatever the method:

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
from dataclasses import asdict, dataclass
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
from oneproj.schema import check_like
from oneproj.vectors.arithmetic import (
    Vector,
    difference,
    dimension,
    norm,
    on_devices,
    rounding_unit,
    snapshot,
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
    felt: float = 0.1
    """Change of the objective by one step in such a column, as a share of it."""
    swing: float = 2.0
    """Objective over its least value so far."""
    swing_share: float = 0.2
    """That rise, as a share of the first objective. Raw features make 0.2 to 1.7."""
    alive: float = 0.5
    """Dead network: least share of parameters in tensors with a gradient, at first."""
    dead: float = 0.05
    """Largest share of them at the end."""
    moved: float = 0.6
    """Short steps: share of ``sum_k lr_k``. One direction all the time makes 0.7, an
    arrival 0.4."""
    solved: float = 0.1
    """Share of the first objective from which on short steps do not matter."""
    planned: int = 100
    """Updates: who plans fewer tries something out."""
    diverged: float = 1e6
    """Final norm of the parameters over their first one, or over 1."""
    rise: float = 5.0
    """Final objective over the first one."""
    low_share: float = 0.1
    """Share of the second half's minibatches that may be low all the same."""
    fall: float = 0.1
    """Share by which the objective falls in the last quarter."""
    standard_errors: float = 2.0
    """By which that fall exceeds the noise, in standard errors."""
    nearly_zero: float = 0.01
    """Share of the first objective that is not worth more updates."""
    far: float = 0.1
    """Residual over the bound, or move over the parameters' norm."""


LIMITS = Thresholds()


@dataclass
class _Seen:
    """What a resumed run has to know of the updates before."""

    alive: float | None = None  # the share of parameters with a gradient: the first
    left: float = 1.0  # and the last
    least: float | None = None  # objective since uneven columns were seen
    size: float = 0.0  # of the objective then
    updates: int = 0
    reach: float = 0.0  # the sum of the step sizes
    first: float = 0.0  # objectives, added up over the first window
    last: float = 0.0  # and the last


class RunDiagnostics:
    """Collects objectives and their gradients, and warns at the end.

    Args:
        point: The parameters at the start.
        steps: Updates that are planned.
        window: Updates whose mean objective stands for start and end.
        bounded: Whether no step can move a parameter by more than its size.

    Example:
        >>> w = torch.zeros(2)
        >>> seen = RunDiagnostics([w], steps=100, window=10, bounded=True)
        >>> for k in range(100):
        ...     w[0] += 0.1
        ...     seen.add_update((20.0 - w[0].item()) ** 2, lr=0.1)
        >>> seen.is_under_way([w]), seen.is_under_way([0.5 * w])
        (True, False)
        >>> seen.add_gradient(1.0, [torch.ones(40)], lr=0.1)
        >>> seen.add_gradient(1.0, [torch.zeros(40)], lr=0.1); seen.is_dead
        True
    """

    def __init__(
        self, point: Vector, *, steps: int, window: int, bounded: bool
    ) -> None:
        """Nothing was seen yet."""
        self._start = snapshot(point) if bounded else None
        self._steps, self._window = steps, window
        self._seen = _Seen()

    def add_gradient(self, objective: float, gradient: Vector, lr: float) -> None:
        """Take the gradient of an update into account; the first shows the units."""
        seen, share = self._seen, _share_with_gradient(gradient)
        if seen.alive is None:
            seen.alive = share
            if are_uneven(objective, gradient, lr):
                seen.least, seen.size = objective, abs(objective)
        seen.left = share if objective != 0 else 1.0  # it may be zero and solved

    def add_update(self, objective: float, lr: float) -> None:
        """Take an update into account; warn once if the objective swings."""
        seen = self._seen
        if seen.updates < self._window:
            seen.first += objective
        if seen.updates >= self._steps - self._window:
            seen.last += objective
        seen.updates, seen.reach = seen.updates + 1, seen.reach + lr
        if seen.least is None:
            return
        seen.least = min(seen.least, objective)
        rise = objective - seen.least
        if (
            objective > LIMITS.swing * seen.least
            and rise > LIMITS.swing_share * seen.size
        ):
            seen.least = None
            _warn_of_units()

    def warn_at_the_end(self, point: Vector) -> None:
        """Warn of what went wrong, and say what helps."""
        if self.is_under_way(point):
            _warn_of_short_steps(self._seen.reach)
        if self.is_dead:
            _warn_of_death(self._seen.alive or 0.0, self._seen.left)

    @property
    def is_dead(self) -> bool:
        """Whether nearly all gradients have gone, and the objective has not."""
        return (
            self._seen.alive or 0.0
        ) >= LIMITS.alive and self._seen.left <= LIMITS.dead

    def is_under_way(self, point: Vector) -> bool:
        """Whether all planned updates were too few to get to where they went."""
        seen = self._seen
        nearly_gone = abs(seen.last) <= LIMITS.solved * abs(seen.first)
        planned = seen.updates >= max(self._steps, LIMITS.planned)
        if self._start is None or nearly_gone or not planned:
            return False
        parts = [part for part in difference(point, self._start) if part.numel()]
        moved = max((part.abs().max().item() for part in parts), default=0.0)
        return moved > LIMITS.moved * seen.reach > 0

    def state_dict(self) -> dict[str, Any]:
        """What was seen, and where the run began."""
        return {"seen": asdict(self._seen), "start": self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        for name in ("alive", "least"):
            if (known := state["seen"][name]) is not None:
                check_like(known, math.inf, f"diagnostics.{name}")
        self._seen = _Seen(**state["seen"])
        if self._start is not None:
            self._start = on_devices(state["start"], self._start)


def are_uneven(objective: float, gradient: Vector, lr: float) -> bool:
    """Whether some matrix of weights has columns of very different size.

    Example:
        >>> slopes = [torch.tensor([[1.0, 2.0, 500.0]]), torch.tensor([0.5])]
        >>> are_uneven(20.0, slopes, lr=0.1), are_uneven(20.0, slopes[1:], lr=0.1)
        (True, False)
    """
    return any(_is_uneven(slope, lr, abs(objective)) for slope in gradient)


def _is_uneven(slope: Tensor, lr: float, size: float) -> bool:
    if slope.ndim != 2:  # noqa: PLR2004 - a matrix
        return False
    columns = slope.square().mean(0).sqrt()
    columns = columns[columns > 0]
    if columns.numel() == 0:
        return False
    spread = LIMITS.column_ratio if columns.numel() > 2 else LIMITS.pair_ratio  # noqa: PLR2004 - two of them
    largest = columns.max().item()
    return (
        largest >= spread * columns.median().item()
        and lr * largest >= LIMITS.felt * size
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


def _warn_of_short_steps(reach: float) -> None:
    message = (
        f"The run may have ended on its way: some parameter moved by most of "
        f"{reach:.3g}, the sum of all step sizes and so the farthest that Adam can go, "
        "and the objective was not nearly gone. The answer depends on the start. "
        "Standardise features and targets, or give a larger lr or more steps, or, for "
        'a small model, take method="auto"; if the objective has no minimum, as a sum '
        "of logits has none, bound it by radius= or a constraint."
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
    found = sum(slope.numel() for slope in gradient if torch.count_nonzero(slope))
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
    objective: float,
    multipliers: Mapping[str, float],
    *,
    planned: bool,
) -> None:
    """Warn of what the record of a run shows.

    Args:
        context: Of the run, which has ended.
        record: The history of the run: the objective and each constraint, by update.
        objective: At the answer.
        multipliers: Of the constraints, there.
        planned: Whether it ended as planned; the record says if with all updates.
    """
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
        f"{size:.2g}; to end nearer, try more steps or a larger strength"
    )


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
    rounding = math.sqrt(rounding_unit(context.problem.parameters))
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
    seen: Sequence[float],
    *,
    steps: int,
    batch_size: int,
    examples: int | None,
    saved: bool = False,
) -> None:
    """Warn of a run whose objective was still falling when it ended.

    Args:
        seen: The objective at every recorded update, all planned ones.
        steps: Updates that were made.
        batch_size: Examples of each.
        examples: Of the objective; None for one that is no mean.
        saved: Whether there is a checkpoint, which keeps its number of updates.
    """
    quarter = len(seen) // 4
    if len(seen) < LIMITS.planned:
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
    if saved:
        message += (
            " That is a new run, with another checkpoint: the step sizes are planned "
            "for all updates, so this one cannot be extended."
        )
    warn(message)
