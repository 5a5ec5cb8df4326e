"""What one row of the table runs: a problem, a schedule, a number of trials."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from oneproj.errors import InvalidScheduleError
from oneproj.theory import Schedule
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.kernel import LANES
from oneproj_paper.laboratory.problems import all_problems
from oneproj_paper.laboratory.twin import draw_indices

QUICK_FACTOR = 16
"""``--quick`` divides T and K by this; no theorem covers the result."""
FORMAT = 1
"""Raised when a change of the twin makes old checkpoints meaningless."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One row: which problem, how short, how often, from which seed.

    Attributes:
        problem: the laboratory problem.
        trials: independent runs.
        seed: of all of them.
        factor: T and K are the theorem's, divided by this; 1 is to the letter.

    Example:
        >>> from oneproj_paper.laboratory.problems import smooth_problem
        >>> Plan(problem=smooth_problem(), trials=20, seed=0).groups
        (range(0, 8), range(8, 16), range(16, 20))
    """

    problem: AbstractLaboratoryProblem
    trials: int
    seed: int
    factor: int = 1

    def __post_init__(self) -> None:
        """Check the counts."""
        if self.trials < 1 or self.factor < 1:
            message = (
                "A row needs at least one trial and a factor of at least 1, got "
                f"trials={self.trials}, factor={self.factor}."
            )
            raise InvalidScheduleError(message)

    @cached_property
    def schedule(self) -> Schedule:
        """The theorem's schedule, or a shorter one that it does not cover."""
        full = self.problem.schedule
        if self.factor == 1:
            return full
        return full.with_steps(
            outer_steps=max(2, full.outer_steps // self.factor),
            inner_steps=max(2, full.inner_steps // self.factor),
        )

    @property
    def groups(self) -> tuple[range, ...]:
        """The trials that share a compiled loop."""
        starts = range(0, self.trials, LANES)
        return tuple(range(i, min(i + LANES, self.trials)) for i in starts)

    @property
    def selected(self) -> list[int]:
        """J of each trial."""
        key, indices = self.problem.key, self.schedule.indices
        return draw_indices(self.seed, key, self.trials, indices)

    @property
    def digest(self) -> str:
        """A name for everything that decides the trajectory of a trial."""
        problem, schedule = self.problem, self.schedule
        facts = [
            [FORMAT, self.seed, problem.key, problem.noise, problem.start],
            [problem.objective.parameters, problem.set.parameters],
            [schedule.outer_steps, schedule.inner_steps, schedule.strong_convexity],
            [schedule.prox_weight, schedule.strength, schedule.smoothing],
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    def describe_constants(self) -> dict[str, object]:
        """The constants of the assumptions, by name."""
        return asdict(self.schedule.constants)


def make_plans(*, trials: int, seed: int, quick: bool) -> list[Plan]:
    """Return one plan per theorem.

    Example:
        >>> [plan.factor for plan in make_plans(trials=8, seed=0, quick=True)]
        [16, 16, 16]
    """
    factor = QUICK_FACTOR if quick else 1
    return [
        Plan(problem=problem, trials=trials, seed=seed, factor=factor)
        for problem in all_problems()
    ]
