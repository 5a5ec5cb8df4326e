"""Algorithm 1 as a theorem has it: the optimiser of a schedule, and what it assumes."""

from __future__ import annotations

from oneproj.errors import InvalidProblemError
from oneproj.methods.one_projection import OneProjection
from oneproj.methods.setting import Setting
from oneproj.problem import Problem
from oneproj.theory import Schedule


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
    residuals = problem.residuals()
    if schedule.setting == "convex" and max(residuals.values()) > 0:
        message = (
            "Theorems 1 and 2 start from a feasible point (Assumption 1), but the "
            f"residuals at the start are {residuals}. Use oneproj.project on it first."
        )
        raise InvalidProblemError(message)
