"""``"one-projection"``: a penalty, the optimiser of Algorithm 1, and one projection.

With a schedule the run is exactly the one of its theorem, and the assumptions that can
be tested are tested. Without one, options and defaults choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LRScheduler

from oneproj.arguments import check_number, is_number
from oneproj.certificates.assumptions import undeclared
from oneproj.certificates.kkt import outward
from oneproj.errors import InvalidProblemError
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.base_steps import (
    BaseLike,
    DecayLike,
    choose_base,
    schedule_lr,
    unrecorded,
)
from oneproj.methods.checks import Select
from oneproj.methods.diagnostics import RunDiagnostics
from oneproj.methods.engine import PenaltyEngine
from oneproj.methods.one_projection import LATE_WEIGHT, OneProjection
from oneproj.methods.step_size import (
    choose_inner_steps,
    default_lr,
    far_lr,
    lengthen,
)
from oneproj.methods.strength import AutoStrength
from oneproj.oracles import ORACLES, Estimate, OracleLike
from oneproj.oracles.anchor import Anchor
from oneproj.oracles.penalties import AbstractPenalty, Combine, Hinge, Softplus
from oneproj.problem.problem import Problem
from oneproj.rates.correction import has_rates
from oneproj.results import Projection
from oneproj.schema import Resumable
from oneproj.theory import Schedule
from oneproj.theory.constants import ROUNDINGS, Observations
from oneproj.vectors.arithmetic import (
    difference,
    dimension,
    dot,
    gradients,
    norm,
    rounding_unit,
    snapshot,
)


class AssumptionWatch:
    """Records the gradients of a run with a schedule, for the theorem's constants.

    The gradient of the constraint is what the penalty adds to ``.grad``, over the
    penalty's weight. It is recorded where the constraint is violated: elsewhere the
    weight is small or zero.
    """

    def __init__(self, problem: Problem, penalty: AbstractPenalty) -> None:
        """Begin without observations."""
        self.seen = Observations()
        self._problem, self._penalty = problem, penalty
        self._objective: list[Tensor] = []

    def state_dict(self) -> dict[str, float]:
        """Return the observations, by name."""
        return dict(vars(self.seen))

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from such a state."""
        self.seen = Observations(**state)

    def add_objective(self) -> None:
        """Record the objective's gradient, which is alone in ``.grad``."""
        self._objective = snapshot(gradients(self._problem.parameters))
        self.seen.add(objective_gradient=norm(self._objective))

    def add_penalty(self, residuals: Mapping[str, float]) -> None:
        """Record the constraint's gradient, once the penalty's is in ``.grad``, too."""
        [value] = residuals.values()
        if not value > 0:
            return
        problem = self._problem
        parameters, [weight] = problem.parameters, self._penalty.weigh([value])
        total = gradients(parameters)
        pull = difference(total, self._objective)
        length, eps = norm(pull) / weight, rounding_unit(parameters)
        noise = ROUNDINGS * eps * (norm(total) + norm(self._objective)) / weight
        far, normal = outward(parameters, problem.center)
        near = far >= problem.radius * (1.0 - ROUNDINGS * eps)
        inward = min(dot(pull, normal) / weight, 0.0) if near else 0.0
        slope = math.sqrt(max(length**2 - inward**2, 0.0))
        self.seen.add(
            constraint_gradient=length - noise,
            infeasible_gradient=length + noise,
            infeasible_slope=slope + noise,
        )


def with_schedule(context: Context, schedule: Schedule) -> OneProjection:
    """The optimiser that executes a schedule to the letter.

    Raises:
        InvalidProblemError: The theorem assumes what the problem or the run is not.
    """
    problem = context.problem
    _check_assumptions(problem, schedule)
    if problem.radius != schedule.radius:
        message = (
            f"The schedule was made for a ball of radius {schedule.radius}, the "
            f"problem has radius {problem.radius}. Build the constants with it."
        )
        raise InvalidProblemError(message)
    if context.oracle_class is not ORACLES["exact"]:
        message = (
            "The theorems assume that g and its gradient are seen exactly, but the "
            f'oracle is {context.oracle_class.name!r}. Use oracle="exact" with a '
            "schedule."
        )
        raise InvalidProblemError(message)
    return OneProjection(
        problem.parameters,
        strong_convexity=schedule.strong_convexity,
        prox_weight=schedule.prox_weight,
        inner_steps=schedule.inner_steps,
        radius=problem.radius,
        center=problem.center,
        select="random",
        outer_steps=schedule.outer_steps,
        first_index=schedule.first_index,
        generator=context.selection,
    )


def _check_assumptions(problem: Problem, schedule: Schedule) -> None:
    """What the theorems ask of a problem beyond its constants, and can be seen."""
    if len(problem.constraints) != 1:
        message = (
            "The theorems assume one differentiable constraint g; this problem has "
            f"{len(problem.constraints)}, and their maximum has kinks. Combine them "
            "into one smooth function, or run without a schedule."
        )
        raise InvalidProblemError(message)
    [(name, constraint)] = problem.constraints.items()
    if has_rates(constraint):
        message = (
            f"The theorems assume a differentiable constraint, but {name!r} bounds a "
            "rate, whose value is a count. Run without a schedule, or bound "
            "rate.surrogate(), which is smooth."
        )
        raise InvalidProblemError(message)
    declared = constraint.curvature in ("convex", "linear")
    if schedule.setting == "convex" and not declared:
        message = (
            f"Theorems 1 and 2 assume {undeclared(name)}. If it is, say so: "
            'curvature="convex" of its term. If not, use oneproj.theory.'
            "nonconvex_schedule, whose theorem does not assume it."
        )
        raise InvalidProblemError(message)
    residuals = problem.residuals()
    if schedule.setting == "convex" and max(residuals.values()) > 0:
        message = (
            "Theorems 1 and 2 start from a feasible point (Assumption 1), but the "
            f"residuals at the start are {residuals}. Use oneproj.project on it first."
        )
        raise InvalidProblemError(message)


@dataclass(frozen=True)
class Algorithm1(AbstractMethod):
    """Algorithm 1 with automatic strengths, and one projection at the end.

    With a schedule, which gives all of it, none of these options may be given.

    Example:
        >>> import oneproj
        >>> oneproj.methods.Algorithm1(lr=0.01).strength
        'auto'
    """

    name = "one-projection"
    follows_schedules = True

    lr: float | None = None
    """None for a measured step of at most 0.1, longer for a start that is far from
    feasible; see ``step_size``."""
    decay: DecayLike = "cosine"
    """How lr changes: to zero over the planned steps, or not, or as a scheduler has it.
    """
    base: BaseLike = "adam"
    prox_weight: float = 0.02
    """The pull to the proximal centre. ``lr * prox_weight`` is at most 1; where a start
    far from feasible lengthens the steps, the prox weight falls by as much."""
    inner_steps: int | None = None
    """None for 10, or half of fewer than 20 updates."""
    late_weight: float = LATE_WEIGHT
    """How much later inner iterates count for in the next centre; 0 for the mean."""
    strength: float | Literal["auto"] = "auto"
    smoothing: float | None = None
    """None for the hinge, a number for softplus."""
    combine: Combine | None = None
    """Of a strength that is given: None for ``"max"``. Automatic strengths are one per
    constraint, so there is nothing to combine."""
    select: Select = "last"
    clip: float | None = None
    """Largest norm of an objective gradient. The penalty's is never clipped: a push
    back that is weaker than the multipliers would not be exact."""

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Automatic strengths are found at anchors, whatever the oracle."""
        automatic = not scheduled and self.strength == "auto"
        return automatic or super().takes_anchors(oracle, scheduled=scheduled)

    def begin(self, context: Context) -> Algorithm1Updater:
        """Start a run."""
        return Algorithm1Updater(context, self)


class _Engine(OneProjection):
    """``OneProjection`` without what torch puts around the step of an optimiser."""

    step = unrecorded(OneProjection.step)


class Algorithm1Updater(Resumable, AbstractUpdater):
    """Algorithm 1 from start to projection; ``OneProjection`` is its engine."""

    STATE = ("optimizer", "_scheduler", "_engine", "_diagnostics", "_outer", "_watch")

    def __init__(self, context: Context, options: Algorithm1) -> None:
        """Build penalty, oracle and optimiser, from the schedule where there is one."""
        self._context = context
        self._penalty: AbstractPenalty | None = None  # unless strengths are automatic
        self._scheduler: LRScheduler | None = None
        self._diagnostics: RunDiagnostics | None = None
        self._watch: AssumptionWatch | None = None
        self._clip: float | None = None
        self._lengthens = False  # whether a start far from feasible lengthens the steps
        if context.schedule is None:
            self._choose(options)
        else:
            self._follow(context.schedule)
        automatic = self._penalty is None
        self._engine = PenaltyEngine(
            context.oracle(self._penalty, renew_every=None),
            AutoStrength(context.defaults) if automatic else None,
            every=context.anchors.every,
        )
        self._outer = 0

    def _follow(self, schedule: Schedule) -> None:
        """Take what a theorem prescribes, and nothing else."""
        self.optimizer = with_schedule(self._context, schedule)
        self._inner_steps = schedule.inner_steps
        self._penalty = _penalty(schedule.strength, schedule.smoothing)
        self._watch = AssumptionWatch(self._context.problem, self._penalty)

    def _choose(self, options: Algorithm1) -> None:
        """Take what the options say, and the defaults where they say nothing."""
        _check(options)
        context, problem, lr = self._context, self._context.problem, options.lr
        steps, defaults = context.steps, context.defaults
        K = self._inner_steps = choose_inner_steps(options.inner_steps, steps, defaults)
        if lr is None:
            lr = default_lr(problem, context.batch_size, defaults, context.counts)
        self.optimizer = _Engine(
            problem.parameters,
            lr,
            prox_weight=options.prox_weight,
            inner_steps=K,
            late_weight=options.late_weight,
            radius=problem.radius,
            center=problem.center,
            base=choose_base(options.base, defaults),
            select=options.select,
            outer_steps=steps // K,
            generator=context.selection,
        )
        self._scheduler = schedule_lr(options.decay, self.optimizer, steps, defaults)
        self._diagnostics, self._clip = RunDiagnostics(), options.clip
        if options.strength != "auto":
            combine = options.combine or "max"
            self._penalty = _penalty(options.strength, options.smoothing, combine)
        # A step of Adam moves no parameter by more than lr. In a network with many
        # parameters that matters less: each has only a part of the way to go.
        small = dimension(problem.parameters) <= defaults.far_start_parameters
        chosen = options.lr is None and isinstance(options.decay, str)
        self._lengthens = small and chosen and options.base == "adam"

    def update(self) -> Estimate:
        """Make one inner update; at a centre, renew anchor and strengths first."""
        engine, parameters = self._engine, self._context.problem.parameters
        anchor = engine.at_center() if self.optimizer.at_center else None
        # What becomes a strength is checked at once, the rest with the penalty.
        objective = engine.oracle.backward_objective(alone=anchor is not None)
        if self._watch is not None:
            self._watch.add_objective()
        if self._clip is not None:
            clip_grad_norm_(parameters, self._clip)
        if self._diagnostics is not None:
            observed = objective, gradients(parameters), self.describe()["lr"]
            if self.optimizer.at_center:
                self._diagnostics.add_gradient(*observed)
            self._diagnostics.add_objective(*observed)
        if engine.strength is not None:
            engine.strength.watch(gradients(parameters))
            if anchor is not None:
                engine.adapt(anchor)
                self._lengthen(anchor)
        residuals = engine.add_penalty()
        if self._watch is not None:
            self._watch.add_penalty(residuals)
        self.optimizer.step()
        self._outer += self.optimizer.at_center
        if self._scheduler is not None:
            self._scheduler.step()
        return Estimate(objective, residuals)

    def finish(self) -> Projection:
        """Select an outer iterate, then make the one projection."""
        # A single update leaves the start, and ``choose_inner_steps`` has warned of it.
        if self._context.steps > 1 or self._context.schedule is not None:
            self.optimizer.eval()
        if self._diagnostics is not None:
            self._diagnostics.warn_if_dead()
        self._release()
        return self._context.project()

    def _release(self) -> None:
        """Free the vectors that only updates need: the projection needs the memory."""
        self.optimizer.release()
        del self._engine
        for p in self._context.problem.parameters:
            p.grad = None

    def describe(self) -> dict[str, Any]:
        """The first step size, the prox weight beside it, and the inner steps."""
        given, group = self.optimizer.defaults["lr"], self.optimizer.param_groups[0]
        return {
            "lr": group.get("initial_lr", given),
            "prox_weight": group["prox_weight"],
            "inner_steps": self._inner_steps,
        }

    @property
    def outer(self) -> int:
        """The number t of outer iterations that are complete."""
        return self._outer

    @property
    def seen(self) -> Observations | None:
        """What the run saw of the quantities that a schedule's constants bound."""
        return None if self._watch is None else self._watch.seen

    def _lengthen(self, anchor: Anchor) -> None:
        """Lengthen the steps, at the start, if feasible points are far from it."""
        if self._outer == 0 and self._lengthens and self._scheduler is not None:
            terms = self._context.problem.constraints.items()
            convex = [name for name, c in terms if c.curvature in ("convex", "linear")]
            lr = far_lr(anchor, self._context.steps, convex, self._context.defaults)
            lengthen(self.optimizer, self._scheduler, lr)


def _check(options: Algorithm1) -> None:
    strength, clip = options.strength, options.clip
    if strength != "auto" and not is_number(strength):
        message = (
            f'strength must be one positive number or "auto", got {strength!r}. The '
            'number is that of all constraints; "auto" finds one for each.'
        )
        raise InvalidProblemError(message)
    if strength == "auto" and options.combine is not None:
        message = (
            f"combine={options.combine!r} needs a strength of its own: it says how one "
            "strength serves several constraints, and automatic strengths are one for "
            "each. Give strength=..., or leave combine out."
        )
        raise InvalidProblemError(message)
    if strength == "auto" and options.smoothing is not None:
        message = (
            f"smoothing={options.smoothing} needs a strength of its own: automatic "
            "strengths are those of hinges. Give strength=..., or leave smoothing out."
        )
        raise InvalidProblemError(message)
    if clip is not None:
        why = "It is the largest norm of an objective gradient; None for no limit."
        check_number("clip", clip, why, infinite=True)


def _penalty(
    strength: float, smoothing: float | None, combine: Combine = "max"
) -> AbstractPenalty:
    if smoothing is None:
        return Hinge(strength, combine)
    return Softplus(strength, smoothing, combine)
