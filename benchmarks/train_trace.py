"""What a run would be worth if it ended now, seen from a callback that costs nothing.

At chosen updates the parameters are copied, projected, judged on all data and put back.
The time that this takes is added up, so that it can be subtracted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from oneproj.methods.base import safeguard
from oneproj.problem.problem import Problem
from oneproj.projection.cuts import Cuts
from oneproj.results import Update
from oneproj.vectors.arithmetic import assign, snapshot

EARLY = (1, 2, 5, 10, 20, 35, 50, 75)
"""Updates to look at before the regular ones: methods differ most at the start."""
REGULAR = 50


def is_due(update: Update) -> bool:
    """Whether a traced run is judged after this update.

    Example:
        >>> updates = [Update(k, 130, 0.0, {}, 0.0) for k in range(1, 131)]
        >>> [u.update for u in updates if is_due(u)]
        [1, 2, 5, 10, 20, 35, 50, 75, 100, 130]
    """
    k = update.update
    return k in EARLY or k % REGULAR == 0 or k == update.steps


@dataclass(frozen=True)
class Point:
    """One judgement along a run."""

    update: int
    seconds: float
    """Since the start, without what the judging took."""
    residual_before: float
    """The worst one of the iterate."""
    residual: float
    """The worst one after its projection; positive if that failed."""
    objective: float
    """After its projection."""


class Trace:
    """A callback of ``solve`` that judges some updates and can end the run.

    Args:
        problem: Whose parameters the run moves.
        due: Which updates to judge; none if left out.
        limit: Seconds that the run may take; judging is not among them.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> size = oneproj.function(lambda: w.norm(), curvature="convex")
        >>> problem = oneproj.Problem(w, size, {"size": size <= 1.0})
        >>> trace = Trace(problem, due=is_due, limit=60.0); trace.start()
        >>> trace(Update(1, 9, 5.0, {}, 0.0)), trace(Update(3, 9, 5.0, {}, 0.0))
        (False, False)
        >>> point, = trace.points
        >>> point.residual_before, round(point.objective, 3), w.tolist()
        (4.0, 1.0, [3.0, 4.0])
    """

    def __init__(
        self,
        problem: Problem,
        *,
        due: Callable[[Update], bool] = lambda _: False,
        limit: float = math.inf,
    ) -> None:
        """Judge nothing yet."""
        self._problem, self._due, self._limit = problem, due, limit
        self.start()

    def start(self) -> None:
        """Begin a run: the clock, and an empty list of points."""
        self.points: list[Point] = []
        self.own = 0.0
        self.stopped = False
        self._began = time.perf_counter()

    def __call__(self, update: Update) -> bool:
        """Judge if it is its turn; True once the time is up."""
        now = time.perf_counter()
        seconds = now - self._began - self.own
        if self._due(update):
            self._judge(update.update, seconds)
            self.own += time.perf_counter() - now
        self.stopped = seconds > self._limit
        return self.stopped

    def _judge(self, update: int, seconds: float) -> None:
        problem = self._problem
        x = snapshot(problem.parameters)
        before = max(problem.residuals().values())
        within = problem.constraints | safeguard(problem)
        Cuts().project(problem.parameters, within)
        point = Point(
            update=update,
            seconds=seconds,
            residual_before=before,
            residual=max(problem.residuals().values()),
            objective=problem.objective.value(),
        )
        self.points.append(point)
        assign(problem.parameters, x)
