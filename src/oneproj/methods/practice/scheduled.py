"""Algorithm 1 as a theorem has it: the optimiser of a schedule, and what it assumes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from oneproj.certificates.assumptions import undeclared
from oneproj.certificates.points import outward
from oneproj.errors import InvalidProblemError
from oneproj.methods.one_projection import OneProjection
from oneproj.methods.setting import Setting
from oneproj.parameters import (
    difference,
    dot,
    gradients,
    norm,
    rounding_unit,
    snapshot,
)
from oneproj.penalties import AbstractPenalty
from oneproj.problem import Problem
from oneproj.theory import Schedule
from oneproj.theory.observations import ROUNDINGS, Observations


class AssumptionWatch:
    """Notes the gradients of a run with a schedule, for the theorem's constants.

    The gradient of the constraint is what the penalty adds to ``.grad``, over the
    penalty's weight. It is noted where the constraint is violated: elsewhere the weight
    is small or zero.
    """

    def __init__(self, problem: Problem, penalty: AbstractPenalty) -> None:
        """Begin without observations."""
        self.seen = Observations()
        self._problem, self._penalty = problem, penalty
        self._objective: list[Tensor] = []

    def see_objective(self) -> None:
        """Note the objective's gradient, which is alone in ``.grad``."""
        self._objective = snapshot(gradients(self._problem.parameters))
        self.seen.add(objective_gradient=norm(self._objective))

    def see_penalty(self, residuals: Mapping[str, float]) -> None:
        """Note the constraint's gradient, once the penalty's is in ``.grad``, too."""
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


def with_schedule(setting: Setting, schedule: Schedule) -> OneProjection:
    """The optimiser that executes a schedule to the letter.

    Raises:
        InvalidProblemError: The problem or the run is not what the theorem speaks of.
    """
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
    [(name, constraint)] = problem.constraints.items()
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
