"""``"one-projection"``: the penalty, the optimiser of Algorithm 1, one projection."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from oneproj.errors import InvalidProblemError, OneprojWarning
from oneproj.methods.base import AbstractMethod
from oneproj.methods.one_projection import OneProjection
from oneproj.methods.setting import Setting
from oneproj.methods.start import Select, is_count
from oneproj.oracles import Sight
from oneproj.penalties import AbstractPenalty, Combine, Hinge, Softplus
from oneproj.problem import Problem
from oneproj.results import Projection
from oneproj.theory import Schedule


@dataclass(frozen=True)
class PenalizedOptions:
    """Settings of the method where no schedule gives them.

    The values of ``strength``, ``prox_weight`` and ``inner_steps`` are those of the
    contract's example; a theorem's schedule replaces all of them.
    """

    lr: float = 0.05
    prox_weight: float = 0.2
    inner_steps: int = 25
    strength: float = 5.0
    smoothing: float | None = None
    """None for the hinge, a number for softplus."""
    combine: Combine = "max"
    select: Select = "last"


class Penalized(AbstractMethod):
    """Algorithm 1 from start to projection; ``OneProjection`` is its engine."""

    name = "one-projection"
    Options = PenalizedOptions
    follows_schedules = True

    def __init__(self, setting: Setting, options: PenalizedOptions) -> None:
        """Build penalty, oracle and optimiser, from the schedule where there is one."""
        self._setting = setting
        if setting.schedule is None:
            penalty = _penalty(options.strength, options.smoothing, options.combine)
            self.optimizer = _with_options(setting, options)
        else:
            penalty = _penalty(setting.schedule.strength, setting.schedule.smoothing)
            self.optimizer = _with_schedule(setting, setting.schedule)
        self._oracle = setting.look(penalty)

    def update(self) -> Sight:
        """One inner update."""
        sight = self._oracle.backward()
        self.optimizer.step()
        return sight

    def finish(self) -> Projection:
        """Select an outer iterate, then make the one projection."""
        self.optimizer.eval()
        return self._setting.project()


def _penalty(
    strength: float, smoothing: float | None, combine: Combine = "max"
) -> AbstractPenalty:
    if smoothing is None:
        return Hinge(strength, combine)
    return Softplus(strength, smoothing, combine)


def _with_options(setting: Setting, options: PenalizedOptions) -> OneProjection:
    K, steps = options.inner_steps, setting.steps
    if not is_count(K):
        message = f"inner_steps must be a whole number >= 1, got {K}."
        raise InvalidProblemError(message)
    if steps < K:
        message = (
            f"steps={steps} is less than inner_steps={K}: no outer iteration would "
            "complete and the start would be returned. Give more steps, or fewer "
            "inner_steps."
        )
        raise InvalidProblemError(message)
    if steps % K:
        message = (
            f"steps={steps} is not a multiple of inner_steps={K}: the last {steps % K} "
            "updates end inside an outer iteration and do not reach the answer."
        )
        warnings.warn(message, OneprojWarning, stacklevel=5)
    return OneProjection(
        setting.problem.parameters,
        options.lr,
        prox_weight=options.prox_weight,
        inner_steps=K,
        radius=setting.problem.radius,
        center=setting.problem.center,
        select=options.select,
        outer_steps=steps // K,
        generator=setting.selection,
    )


def _with_schedule(setting: Setting, schedule: Schedule) -> OneProjection:
    problem = setting.problem
    _check_assumptions(problem, schedule)
    if problem.radius != schedule.radius:
        message = (
            f"The schedule was made for a ball of radius {schedule.radius}, the "
            f"problem has radius {problem.radius}. Build the constants with it."
        )
        raise InvalidProblemError(message)
    if setting.oracle != "exact":
        message = (
            "The theorems assume that g and its gradient are seen exactly, but the "
            f'oracle is {setting.oracle!r}. Use oracle="exact" with a schedule.'
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
        generator=setting.selection,
    )


def _check_assumptions(problem: Problem, schedule: Schedule) -> None:
    """What the theorems ask of a problem beyond its constants, and can be seen."""
    if len(problem.constraints) != 1:
        message = (
            "The theorems speak of one differentiable constraint g; this problem has "
            f"{len(problem.constraints)}, and their maximum has kinks. Combine them "
            "into one smooth function, or run without a schedule."
        )
        raise InvalidProblemError(message)
    residuals = problem.residuals()
    if schedule.setting == "convex" and max(residuals.values()) > 0:
        message = (
            "Theorems 1 and 2 start from a feasible point (Assumption 1), but the "
            f"residuals at the start are {residuals}. Use oneproj.project on it first."
        )
        raise InvalidProblemError(message)
