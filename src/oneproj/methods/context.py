"""The safeguard ball as a constraint, for the projection of a point at its edge.

The theorems assume that the feasible set lies inside the ball, and so does line 6 of
Algorithm 1. Where it does not, the nearest feasible point may lie outside; then the
projection is onto what is feasible *and* in the ball.

What every method is given: the problem and the means to look at it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneproj.arguments import check_count
from oneproj.defaults import Defaults
from oneproj.errors import InvalidProblemError, deprecate
from oneproj.oracles import ORACLES, AbstractOracle, OracleLike
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
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.project import ProjectorLike, choose_projector
from oneproj.results import Counts, Projection
from oneproj.theory import Schedule
from oneproj.vectors.arithmetic import Vector, assign, norm, offset, snapshot

NAME = "safeguard ball"
EDGE = 0.9
"""The share of the radius beyond which a point is at the edge of the ball."""


def safeguard(problem: Problem) -> dict[str, AbstractTerm]:
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


TWICE = (
    "Two projections: the first was onto what is feasible and in the safeguard ball, "
    "and found no point; the second left the ball out."
)


@dataclass(frozen=True)
class Context:
    """A run before its first update; the parameters hold the start."""

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

    def look(self, penalty: AbstractPenalty | None) -> AbstractOracle:
        """Deprecated since 0.2.0: ``oracle``."""
        deprecate("Setting.look", "context.oracle")
        return self.oracle(penalty)

    def project(self) -> Projection:
        """Project the parameters onto the feasible set, and count it.

        At the edge of the safeguard ball, onto its part of the feasible set. If that
        has no points, onto the feasible set: the constraints come first. An error,
        Ctrl-C included, leaves the point before; a failure can be undone.
        """
        problem = self.problem
        self.unprojected[:] = snapshot(problem.parameters)
        ball = safeguard(problem)
        within = problem.constraints | ball
        try:
            if not ball or self.projector.accepts(within) is not None:
                return self._project(problem.constraints)
            projection = self._project(within)
            if projection.status.ok:
                return projection
            self.undo()
            projection = self._project(problem.constraints)
            remark = f"{TWICE} {projection.remark}".rstrip()
            return replace(projection, remark=remark)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Make the parameters hold the point before the last projection, if any.

        The best point of one that failed has the smallest residual that was found and
        can be anywhere: a risk that is to be negative is lowest at infinity. The point
        before is what the training made.
        """
        if self.unprojected:
            assign(self.problem.parameters, self.unprojected)

    def _project(self, constraints: Mapping[str, AbstractTerm]) -> Projection:
        projection = self.projector.project(self.problem.parameters, constraints)
        self.counts.projections += 1
        seen = projection.gradients * len(self.problem.constraints)
        self.counts.constraint_gradients += seen
        self.counts.constraint_passes += seen
        return projection

    def describe(self) -> dict[str, Any]:
        """The settings that do not depend on the method."""
        return {
            "steps": self.steps,
            "oracle": self.oracle_class.name,
            "projector": self.projector.name,
            "batch_size": self.batch_size,
            "anchor_size": self.anchors.size,
            "whole_every": self.anchors.whole_every,
            "anchor_every": self.anchors.every,
            "schedule": self.schedule,
            "defaults": self.defaults.changed(),
        }


def __getattr__(name: str) -> type[Context]:
    """``Context`` under its old name."""
    if name == "Setting":
        deprecate("Setting", "oneproj.methods.context.Context")
        return Context
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


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
    own = _check_defaults(defaults)
    bits = "A run repeats to the bit with its seed, so it has one: 0 when left out."
    seed = check_count("seed", seed, bits, least=0)
    updates = "It is how many updates the run makes."
    steps = check_count("steps", _choose_steps(steps, schedule, own), updates)
    given, batch_size = batch_size is not None, plan_batches(batch_size, problem, own)
    if anchor_size is not None:
        looked = "It is how many examples of a constraint an anchor sees."
        anchor_size = check_count("anchor_size", anchor_size, looked)
    at_once = plan_at_once(
        problem, batch_size, own, given=given, anchor_size=anchor_size
    )
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
            defaults=own,
        ),
        counts=Counts(),
        sampling=torch.Generator().manual_seed(int(sampling >> 1)),
        selection=torch.Generator().manual_seed(int(selection >> 1)),
        schedule=schedule,
        defaults=own,
        saved=saved,
    )


def _check_defaults(defaults: Defaults | None) -> Defaults:
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
    few = max(sizes, default=0) <= at_once
    return ORACLES["exact" if schedule is not None or few else "anchored"]
