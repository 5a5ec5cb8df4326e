"""The interface of a method: what ``solve`` gives it, and what it must do.

A method is two things. ``AbstractMethod`` is a frozen dataclass of its options, which a
user may build and pass on: ``solve(problem, method=ProjectedSGD(lr=0.05))``. Its
``begin`` makes an ``AbstractUpdater``, which holds the state of one run. It gets a
``Context``: the problem, and the means to evaluate it and to project. ``prepare`` makes
that from the arguments of ``solve``.

The theorems assume that the feasible set lies inside the safeguard ball, and so does
line 6 of Algorithm 1. Where it does not, the nearest feasible point may lie outside.
Then ``Context.project`` projects onto what is feasible *and* in the ball.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from oneproj.arguments import check_count, plain
from oneproj.defaults import Defaults
from oneproj.errors import CheckpointError, InvalidProblemError, deprecate
from oneproj.oracles import ORACLES, AbstractOracle, Estimate, OracleLike
from oneproj.oracles.anchor import BestAnchor
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.oracles.plan import (
    BETWEEN_ANCHORS,
    AnchorPlan,
    plan_anchors,
    plan_at_once,
    plan_batches,
)
from oneproj.problem.functions import function
from oneproj.problem.modes import kind_with_two_modes
from oneproj.problem.problem import Constrained, Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.project import ProjectorLike, choose_projector
from oneproj.results import Counts, Projection
from oneproj.theory import Schedule
from oneproj.theory.constants import Observations
from oneproj.vectors.arithmetic import Vector, assign, norm, offset, snapshot

NAME = "safeguard ball"
EDGE = 0.9
"""The share of the radius beyond which a point is at the edge of the ball."""
TWICE = (
    "Two projections: the first was onto what is feasible and in the safeguard ball, "
    "and found no point; the second left the ball out."
)


class AbstractUpdater(ABC):
    """The state of one run: ``update()`` again and again, then ``finish()``.

    It owns its loop variables and nothing else: ``solve`` counts updates, keeps time
    and history, and certificates judge the result.

    Example:
        >>> import oneproj
        >>> from oneproj.methods import AbstractUpdater
        >>> class Rest(AbstractUpdater):
        ...     def __init__(self, context):
        ...         self.context = context
        ...         self.oracle = context.oracle(oneproj.Hinge(1.0))
        ...     def update(self): return self.oracle.backward()
        ...     def finish(self): return self.context.project()
    """

    WITHOUT_STATE: ClassVar[str] = "It has no state_dict()."
    """Why a run of it cannot be saved, where it cannot."""

    @abstractmethod
    def update(self) -> Estimate:
        """Use one stochastic gradient of the objective; return the estimates."""

    @abstractmethod
    def finish(self) -> Projection:
        """Make the parameters hold the answer; return how it became feasible."""

    @property
    def done(self) -> bool:
        """Whether further updates would do nothing; most methods never know."""
        return False

    @property
    def stuck(self) -> bool:
        """Whether a projection of the last update failed; ``finish`` reports it."""
        return False

    @property
    def outer(self) -> int | None:
        """Outer iterations that are complete; None for a method that has none."""
        return None

    @property
    def seen(self) -> Observations | None:
        """Extremes of what a schedule's constants bound; None without a schedule."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """All that further updates depend on, beyond the parameters and the context.

        Between two updates. Tensors need not be copied: the state is written to a file
        before the next one. Numbers, strings, tensors and containers of them only.

        Raises:
            CheckpointError: The method cannot be resumed; the message says why.
        """
        message = (
            f"A run of this method cannot be saved and resumed. {self.WITHOUT_STATE} "
            "Leave out checkpoint=, or use another method."
        )
        raise CheckpointError(message)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state; parameters and context are loaded already."""
        del state
        self.state_dict()  # says why not

    def describe(self) -> dict[str, Any]:
        """What the method settled itself; takes precedence in ``Solution.settings``."""
        return {}


class AbstractMethod(ABC):
    """One way to solve a problem: a frozen dataclass whose fields are its options.

    Example:
        >>> import oneproj
        >>> oneproj.methods.ProjectedSGD(lr=0.1)
        ProjectedSGD(lr=0.1, base='sgd', decay='constant')
    """

    name: ClassVar[str]
    """What ``Solution.settings`` and messages call it."""
    follows_schedules: ClassVar[bool] = False
    """Whether it can execute a schedule: the theorems are about Algorithm 1."""
    WITHOUT_OPTIONS: ClassVar[str] = "It has none."
    """The message for an option that is given to a method without options."""

    @abstractmethod
    def begin(self, context: Context) -> AbstractUpdater:
        """Prepare a run; the parameters hold the start."""

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Whether a run may take anchors, and ``anchor_size`` so has an effect.

        Args:
            oracle: As it was given to ``solve``.
            scheduled: Whether a schedule takes the place of the options.
        """
        if not isinstance(oracle, str):
            return oracle.uses_anchors
        return oracle == "anchored" or (oracle == "auto" and not scheduled)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return dict(vars(self))


def make_method(
    method: type[AbstractMethod] | AbstractMethod,
    options: Mapping[str, Any],
    schedule: Schedule | None,
    *,
    beside: Sequence[str] = (),
) -> AbstractMethod:
    """A method with its options; refuses unknown ones, and any beside a schedule.

    Args:
        method: A class, whose options are still to be given, or an object with them.
        options: By name, as they were given to ``solve``.
        schedule: That is followed, if any.
        beside: Arguments that every method has: a misspelt name may be one of these.

    Raises:
        InvalidProblemError: An option is unknown, or is given twice, or the schedule
            sets it already.
    """
    if isinstance(method, AbstractMethod):
        return _check_object(method, options, schedule)
    known = list(inspect.signature(method).parameters)
    for name in options:
        if name not in known:
            has = f"It has: {', '.join(known)}." if known else method.WITHOUT_OPTIONS
            near = get_close_matches(name, [*beside, *known], n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            has += f" Besides, solve takes: {', '.join(beside)}." if beside else ""
            message = f"The method {method.name!r} has no option {name!r}. {meant}{has}"
            raise InvalidProblemError(message)
    _check_schedule(method, options, schedule)
    return method(**{name: plain(given) for name, given in options.items()})


def _check_object(
    method: AbstractMethod, options: Mapping[str, Any], schedule: Schedule | None
) -> AbstractMethod:
    if options:
        message = (
            f"The method is an object, {method!r}, and holds its own options; got "
            f"{sorted(options)} beside it. Give them to the object, or name the "
            f"method: method={method.name!r}."
        )
        raise InvalidProblemError(message)
    defaults = {
        name: argument.default
        for name, argument in inspect.signature(type(method)).parameters.items()
    }
    given = {k: v for k, v in method.options.items() if v != defaults.get(k)}
    _check_schedule(type(method), given, schedule)
    return method


def _check_schedule(
    method: type[AbstractMethod], options: Mapping[str, Any], schedule: Schedule | None
) -> None:
    """Refuse a schedule for a method without theorems, and options beside it."""
    if schedule is not None and not method.follows_schedules:
        message = (
            f"The method {method.name!r} cannot follow a schedule: the theorems are "
            'about Algorithm 1. Use method="one-projection", or give steps.'
        )
        raise InvalidProblemError(message)
    if schedule is not None and options:
        message = (
            "A schedule is executed to the letter: it sets the steps, the penalty and "
            f"the selection, so no option may be given with it; got {sorted(options)}."
        )
        raise InvalidProblemError(message)


def check_returned(found: object, wanted: type, what: str, advice: str) -> None:
    """Refuse what a method of the user's own returns by mistake.

    Args:
        found: What it returned.
        wanted: The class that it must be of.
        what: The call that returned it.
        advice: What to return instead.

    Example:
        >>> check_returned(None, Projection, "finish()", "Return context.project().")
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: finish() must return an object of class \
Projection, but returned None. Return context.project().
    """
    if not isinstance(found, wanted):
        message = (
            f"{what} must return an object of class {wanted.__name__}, but returned "
            f"{found!r}. {advice}"
        )
        raise InvalidProblemError(message)


def check_anchor_size(
    method: AbstractMethod,
    anchor_size: int | None,
    oracle: OracleLike,
    *,
    scheduled: bool,
) -> None:
    """Refuse a size of anchors where no anchor is taken.

    Args:
        method: That is to run.
        anchor_size: As it was given; None if it was not.
        oracle: As it was given.
        scheduled: Whether a schedule takes the place of the options.

    Raises:
        InvalidProblemError: It would have no effect.
    """
    if anchor_size is None or method.takes_anchors(oracle, scheduled=scheduled):
        return
    beside = f"method={method.name!r} and oracle={oracle!r}"
    if scheduled:
        beside += " and a schedule"
    message = (
        f"anchor_size={anchor_size} has no effect with {beside}: no anchor is taken. "
        'They are taken by oracle="anchored", and by method="one-projection" with '
        "automatic strengths. Leave anchor_size out, or use one of these."
    )
    raise InvalidProblemError(message)


def safeguard(problem: Constrained) -> dict[str, AbstractTerm]:
    """The ball under its name if the point is at its edge, else nothing.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0)
        >>> {name: ball.value() for name, ball in safeguard(problem).items()}
        {'safeguard ball': 1.0}
    """
    z, center, radius = problem.parameters, problem.center, problem.radius
    if math.isinf(radius) or NAME in problem.constraints:
        return {}
    if norm(offset(z, center)) < EDGE * radius:
        return {}
    ball = function(lambda: _length(z, center), curvature="convex") <= radius
    return {NAME: ball.named(NAME)}


def _length(point: Vector, center: Vector | None) -> Tensor:
    """``|z - c|``, differentiable, added up in float64."""
    offsets = (
        list(point)
        if center is None
        else [z - c for z, c in zip(point, center, strict=True)]
    )
    squares = [offset.double().square().sum() for offset in offsets]
    return torch.stack(squares).sum().sqrt()


@dataclass(frozen=True)
class Context:
    """A run before its first update: the problem, its oracle and its projector.

    The parameters hold the start. ``solve`` makes it, and ``AbstractMethod.begin`` gets
    it.

    Example:
        >>> from oneproj.methods import AbstractMethod, AbstractUpdater, Context
        >>> class Rest(AbstractMethod):
        ...     name = "rest"
        ...     def begin(self, context: Context) -> AbstractUpdater:
        ...         oracle = context.oracle(None)  # counts what it evaluates
        ...         ...  # keep both in an AbstractUpdater
    """

    problem: Problem
    steps: int
    projector: AbstractProjector
    oracle_class: type[AbstractOracle]
    batch_size: int
    anchors: AnchorPlan
    counts: Counts
    sampling: torch.Generator
    """Draws the minibatches."""
    selection: torch.Generator
    """Draws the index of the outer iterate, where a method selects one."""
    schedule: Schedule | None = None
    defaults: Defaults = field(default_factory=Defaults)
    saved: bool = False
    """Whether the run is to be saved, or resumed: not every method can be."""
    unprojected: list[Tensor] = field(default_factory=list)
    """Where the last projection began; shared by copies of this context."""
    best_anchor: BestAnchor = field(default_factory=BestAnchor)
    """The best feasible anchor so far; shared likewise."""

    def oracle(
        self,
        penalty: AbstractPenalty | None,
        *,
        renew_every: int | None = BETWEEN_ANCHORS,
    ) -> AbstractOracle:
        """Make the oracle of this run, with the method's penalty.

        Args:
            penalty: Added to the objective; None for none.
            renew_every: Updates between two anchors; None for a method that renews
                them at its centre.
        """
        return self.oracle_class(
            self.problem,
            penalty,
            batch_size=self.batch_size,
            generator=self.sampling,
            counts=self.counts,
            plan=self.anchors,
            renew_every=renew_every,
            shuffle=self.schedule is None and self.oracle_class.shuffles,
            best=self.best_anchor,
        )

    def look(
        self,
        penalty: AbstractPenalty | None,
        *,
        renew_every: int | None = BETWEEN_ANCHORS,
    ) -> AbstractOracle:
        """Deprecated since 0.2.0: ``oracle``."""
        deprecate("Setting.look", "context.oracle")
        return self.oracle(penalty, renew_every=renew_every)

    def project(self) -> Projection:
        """Project the parameters onto the feasible set, and count it.

        At the edge of the safeguard ball, onto its part of the feasible set. If that
        has no points, onto the feasible set: the constraints come first. An error,
        Ctrl-C included, leaves the point before; a failure can be undone.
        """
        problem = self.problem
        self.unprojected[:] = snapshot(problem.parameters)
        ball = safeguard(problem)
        onto = [problem.constraints | ball, problem.constraints]
        if not ball or self.projector.accepts(onto[0]) is not None:
            del onto[0]
        try:
            for made, constraints in enumerate(onto):
                if made:
                    self.undo()
                found = self.projector.project(problem.parameters, constraints)
                self.counts.projections += 1
                seen = found.gradients * len(problem.constraints)
                self.counts.constraint_gradients += seen
                self.counts.constraint_passes += seen
                if found.status.ok and not made:
                    return found
        except BaseException:
            self.undo()
            raise
        remark = f"{TWICE if made else ''} {found.remark}".strip()
        return replace(found, remark=remark)

    def undo(self) -> None:
        """Make the parameters hold the point before the last projection, if any.

        The best point of one that failed has the smallest residual that was found and
        can be anywhere: a risk that is to be negative is lowest at infinity. The point
        before is what the training made.
        """
        if self.unprojected:
            assign(self.problem.parameters, self.unprojected)

    def describe(self) -> dict[str, Any]:
        """The settings that do not depend on the method."""
        return {
            "steps": self.steps,
            "oracle": self.oracle_class.name,
            "projector": self.projector.name,
            "batch_size": self.batch_size,
            "anchor_size": self.anchors.size,
            "reference_every": self.anchors.reference_every,
            "anchor_every": self.anchors.every,
            "schedule": self.schedule,
            "defaults": self.defaults.changed(),
        }


def prepare(
    problem: Problem,
    *,
    steps: int | None,
    seed: int,
    schedule: Schedule | None,
    projector: ProjectorLike,
    oracle: OracleLike,
    batch_size: int | None,
    anchor_size: int | None,
    defaults: Defaults | None = None,
    saved: bool = False,
) -> Context:
    """Check the arguments of ``solve`` and turn names into objects.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it.
    """
    defaults = check_defaults(defaults)
    bits = "A run repeats to the bit with its seed, so it has one: 0 when left out."
    seed = check_count("seed", seed, bits, least=0)
    updates = "It is how many updates the run makes."
    steps = check_count("steps", _choose_steps(steps, schedule, defaults), updates)
    batch_size = plan_batches(batch_size, problem, defaults)
    if anchor_size is not None:
        examples = "It is how many examples of a constraint an anchor sees."
        anchor_size = check_count("anchor_size", anchor_size, examples)
    at_once = plan_at_once(batch_size, anchor_size, defaults)
    chosen = _choose_oracle(oracle, problem, schedule, at_once)
    # Independent streams for sampling and selection, both fixed by the seed.
    sampling, selection = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return Context(
        problem=problem,
        steps=steps,
        projector=choose_projector(projector, problem.constraints),
        oracle_class=chosen,
        batch_size=batch_size,
        anchors=plan_anchors(
            anchor_size,
            problem,
            batch_size,
            chosen.name,
            at_once=at_once,
            defaults=defaults,
        ),
        counts=Counts(),
        sampling=torch.Generator().manual_seed(int(sampling >> 1)),
        selection=torch.Generator().manual_seed(int(selection >> 1)),
        schedule=schedule,
        defaults=defaults,
        saved=saved,
    )


def check_defaults(defaults: Defaults | None) -> Defaults:
    """Return the numbers that were given, or the library's own.

    Example:
        >>> check_defaults(None) == Defaults()
        True
    """
    if defaults is None or isinstance(defaults, Defaults):
        return defaults or Defaults()
    message = (
        f"defaults must be an oneproj.Defaults, got a {type(defaults).__name__}. "
        "Change numbers by dataclasses.replace(oneproj.Defaults(), longest_lr=0.01)."
    )
    raise InvalidProblemError(message)


def _choose_steps(
    steps: int | None, schedule: Schedule | None, defaults: Defaults
) -> int:
    if schedule is None:
        return defaults.steps if steps is None else steps
    if steps is None:
        return schedule.gradient_calls
    message = (
        f"Give steps={steps} or a schedule, not both: the schedule makes "
        f"{schedule.gradient_calls} updates."
    )
    raise InvalidProblemError(message)


def _check_oracle_class(oracle: type[AbstractOracle]) -> None:
    """Refuse an oracle class of which a part is missing."""
    lacks = sorted(oracle.__abstractmethods__)
    if "name" not in dir(oracle):
        lacks = ["name", *lacks]
    if lacks:
        message = (
            f"The oracle class {oracle.__name__} lacks {', '.join(lacks)}: every "
            "oracle has a name, which messages and settings use, and an estimate of a "
            "constraint. The docstring of oneproj.oracles.AbstractOracle has an "
            "example."
        )
        raise InvalidProblemError(message)


def _choose_oracle(
    oracle: OracleLike, problem: Problem, schedule: Schedule | None, at_once: int
) -> type[AbstractOracle]:
    if isinstance(oracle, type) and issubclass(oracle, AbstractOracle):
        _check_oracle_class(oracle)
        return oracle
    if isinstance(oracle, str) and oracle in ORACLES:
        return ORACLES[oracle]
    if oracle != "auto":
        known = ", ".join(("auto", *ORACLES))
        message = (
            f"There is no oracle {oracle!r}. Known: {known}. It says how updates see "
            "the constraints: on all data, on a sample, or on a sample corrected by "
            'all data; "auto" goes by how much there is. One of your own is a class '
            "behind oneproj.oracles.AbstractOracle: pass the class, not an object."
        )
        raise InvalidProblemError(message)
    sizes = [constraint.size or 0 for constraint in problem.constraints.values()]
    if schedule is not None or max(sizes, default=0) <= at_once:
        return ORACLES["exact"]
    # Anchors are in evaluation mode. Where training mode is another function, they are
    # no control variate. Source: continual_cnn_2000, convolutions_batch_norm.
    modules = () if problem.model is None else problem.model.modules()
    noisy = any(m.training and kind_with_two_modes(m) for m in modules)
    return ORACLES["minibatch" if noisy else "anchored"]
