"""The history of a run on all training data, seen from a callback that costs nothing.

The time that looking takes is added up, so that it can be subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oneproj.results import Update
from oneproj_paper.tasks import Experiment


class Trace:
    """A callback of ``solve`` that evaluates some updates and can end the run.

    Args:
        experiment: Whose parameters the run moves.
        every: Updates between two evaluations.
        until: Updates after which to stop; None for all.
        tell: Given the number of updates made, after each.

    Example:
        >>> from oneproj_paper.tasks import build
        >>> trace = Trace(build("abstention-gaussian"), every=25)
        >>> trace.look(0, 0.0); list(trace.columns)
        ['update', 'seconds', 'objective', 'class 0 error', 'class 1 error']
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        every: int,
        until: int | None = None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Nothing is seen yet."""
        self._experiment, self._every = experiment, every
        self._until, self._tell = until, tell
        self.columns: dict[str, list[float]] = {}
        self.own = 0.0
        """Seconds that looking took."""
        self.stopped = False
        """Whether it ended the run."""

    def __call__(self, update: Update) -> bool:
        """Look if it is its turn; True once it is time to stop."""
        began = time.perf_counter()
        k = update.update
        if k % self._every == 0 and k < update.steps:
            self.look(k, update.seconds - self.own)
        self._tell(k)
        self.own += time.perf_counter() - began
        self.stopped = k == self._until
        return self.stopped

    def look(self, update: int, seconds: float) -> None:
        """Evaluate the point that the parameters hold; a second look replaces one."""
        updates = self.columns.get("update", [])
        if updates and updates[-1] == update:
            for column in self.columns.values():
                column.pop()
        row = {"update": update, "seconds": seconds} | self._values()
        for name, value in row.items():
            self.columns.setdefault(name, []).append(float(value))

    def _values(self) -> dict[str, float]:
        experiment = self._experiment
        problem = experiment.problem
        values = {"objective": problem.objective.value()}
        for name, constraint in problem.constraints.items():
            values[name] = constraint.value() + experiment.caps[name]
        if experiment.settings.task == "transfer":
            risk = experiment.measure(experiment.data.validation)["risk"]
            values["validation risk"] = risk
        return values
