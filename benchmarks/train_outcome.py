"""What is asked of a contestant of ``bench train``, and what it answers: plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.train_trace import Trace
from oneproj.methods.base import Context, prepare
from oneproj.problem.problem import Problem
from oneproj_paper.tasks import Experiment

PROJECTOR: Literal["cuts"] = "cuts"
"""Of every contestant, so that the comparison is not one of projectors."""


@dataclass(frozen=True)
class Task:
    """One run that is to be made; the parameters hold the start."""

    experiment: Experiment
    seed: int
    steps: int
    trace: Trace

    @property
    def problem(self) -> Problem:
        """What to solve."""
        return self.experiment.problem

    def context(self) -> Context:
        """Generators, counts and a projector, for loops that are not ``solve``'s."""
        return prepare(
            self.problem,
            steps=self.steps,
            seed=self.seed,
            schedule=None,
            projector=PROJECTOR,
            oracle="minibatch",
            batch_size=None,  # the default: of all without settings of the paper
            anchor_size=None,
        )


@dataclass(frozen=True)
class Outcome:
    """One run that was made, judged on all training data."""

    objective: float | None
    """After the projection; None where the answer is not the point of the run."""
    residual: float | None
    """The worst one after the projection; feasible means <= 0."""
    residual_before: float | None
    seconds: float
    """To the answer: training and projection, without certificate and trace."""
    project_seconds: float
    updates: int
    complete: bool
    """Whether it made all updates that it wanted to make."""
    objective_gradients: int
    constraint_gradients: int
    constraint_passes: int
    projections: int
    note: str = ""
    overhead: float | None = None
    """The time of one projection over this one's, where the two took turns."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds, exactly."""
        return self.residual is not None and self.residual <= 0


def _refuses_none(experiment: Experiment) -> str | None:
    """Every problem is welcome."""
    del experiment
    return None


@dataclass(frozen=True)
class Contestant:
    """A way to solve a problem, under a name of its own."""

    name: str
    about: str
    """Its settings, in words."""
    run: Callable[[Task], Outcome]
    refuses: Callable[[Experiment], str | None] = _refuses_none
    """Why it does not run on a problem; None if it does."""
    only_seed: bool = False
    """Whether the first seed suffices."""
