"""What a row of the table found, as plain data, and whether it passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.stats import beta

from oneproj.vectors.arithmetic import Array
from oneproj_paper import versions
from oneproj_paper.laboratory.checkpoints import Trajectory
from oneproj_paper.laboratory.dent import DentedDisc
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.shapes import Disc

CONFIDENCE = 0.95
PROMISED = 2.0 / 3.0
"""The probability that each theorem promises."""


SETTINGS = (
    *("prox_weight", "strong_convexity", "penalty", "strength", "smoothing"),
    *("inner_failure", "inner_error_target", "inner_error", "first_index"),
)
"""What a record keeps of the schedule, besides T and K."""


class CountedProjection:
    """The projection of a laboratory set that counts the points it projects.

    Example:
        >>> from oneproj_paper.laboratory.shapes import Disc
        >>> project = CountedProjection(Disc(radius=0.5))
        >>> project(np.zeros((3, 2))).shape, project.calls
        ((3, 2), 3)
    """

    def __init__(self, feasible: Disc | DentedDisc) -> None:
        """Start at zero."""
        self._feasible = feasible
        self.calls = 0

    def __call__(self, x: Array) -> Array:
        """Project each row of x."""
        self.calls += len(x)
        return self._feasible.project(x)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row: what was run, what came out, and what is wrong with it, if anything.

    Attributes:
        key: the row.
        title: the problem.
        factor: T and K are the theorem's, divided by this.
        within_theorem: whether the theorem covers the schedule that was run.
        constants: of the assumptions.
        settings: of the schedule.
        epsilon: the target.
        outer_steps: T.
        inner_steps: K.
        trials: independent runs.
        seed: of all of them.
        measure_name: how the paper writes the measure.
        start_measure: at x_0; must exceed epsilon.
        indices: J of each trial.
        outputs: the returned point of each trial.
        measures: the theorem's measure of each trial.
        successes: trials for which every claim of the theorem holds.
        success_bound: one-sided 95 % Clopper-Pearson lower bound on the success
            probability.
        projections: onto the feasible set, counted.
        largest_residual: the largest g among the outputs; feasible means <= 0.
        seconds: of computation, summed over the groups of trials.
        versions: of what computed it.
    """

    key: str
    title: str
    factor: int
    within_theorem: bool
    constants: dict[str, object]
    settings: dict[str, object]
    epsilon: float
    outer_steps: int
    inner_steps: int
    trials: int
    seed: int
    measure_name: str
    start_measure: float
    indices: list[int]
    outputs: list[list[float]]
    measures: list[float]
    successes: int
    success_bound: float
    projections: int
    largest_residual: float
    seconds: float
    versions: dict[str, str]

    @property
    def failures(self) -> list[str]:
        """Why the row fails; empty when it passes.

        A row to the letter must have a success bound of at least 2/3. A shortened row
        is promised nothing by the theorem, so there the plain share of successes must
        reach 2/3; everything else is asked of both.
        """
        reasons = []
        if not self.start_measure > self.epsilon:
            reasons.append("the start already satisfies the claim")
        if self.projections != self.trials:
            reasons.append(f"{self.projections} projections for {self.trials} trials")
        if not self.largest_residual <= 0:
            reasons.append(f"an output is infeasible, g = {self.largest_residual:.2e}")
        share = self.success_bound
        if self.factor > 1:
            share = self.successes / self.trials
        elif not self.within_theorem:
            reasons.append("the schedule is not the theorem's")
        if not share >= PROMISED:
            reasons.append(f"{self.successes} successes of {self.trials} are too few")
        return reasons

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with the row."""
        return not self.failures

    def to_dict(self) -> dict[str, object]:
        """Plain JSON."""
        return asdict(self) | {"passed": self.passed, "failures": self.failures}


def success_bound(successes: int, trials: int) -> float:
    """Return the one-sided 95 % Clopper-Pearson lower bound on a probability.

    Example:
        >>> round(success_bound(8, 8), 4), success_bound(0, 8)
        (0.6877, 0.0)
    """
    if successes == 0:
        return 0.0
    return float(beta.ppf(1 - CONFIDENCE, successes, trials - successes + 1))


def judge(plan: Plan, groups: Sequence[Trajectory]) -> Record:
    """Select x_J, project it once, and check the theorem's statement in each trial."""
    problem, schedule, trials = plan.problem, plan.schedule, plan.trials
    path = np.concatenate([group.path for group in groups], axis=1)
    selected = path[plan.selected, np.arange(trials)]  # line 5
    project = CountedProjection(problem.set)
    output = project(selected)  # line 6
    successes = int(problem.meets(selected, output).sum())
    return Record(
        key=problem.key,
        title=problem.title,
        factor=plan.factor,
        within_theorem=schedule.within_theorem,
        constants=plan.describe_constants(),
        settings={name: getattr(schedule, name) for name in SETTINGS},
        epsilon=problem.epsilon,
        outer_steps=schedule.outer_steps,
        inner_steps=schedule.inner_steps,
        trials=trials,
        seed=plan.seed,
        measure_name=problem.measure_name,
        start_measure=problem.start_measure,
        indices=plan.selected,
        outputs=output.tolist(),
        measures=problem.achieved(selected, output).tolist(),
        successes=successes,
        success_bound=success_bound(successes, trials),
        projections=project.calls,
        largest_residual=float(problem.set.value(output).max()),
        seconds=sum(group.seconds for group in groups),
        versions=versions("oneproj", "numpy", "scipy", "numba"),
    )
