"""Counting the gradients of a run that may be none of ours, and ending it in time."""

from __future__ import annotations

import math
import time

from torch import Tensor

from oneproj.problem.terms import Constraint
from oneproj.vectors.arithmetic import Vector


class TimeUpError(Exception):
    """A run has had its time."""


class Watch:
    """Started before a run; every gradient ticks.

    Example:
        >>> watch = Watch()
        >>> watch.start(limit=math.inf); watch.tick(); watch.gradients
        1
    """

    def __init__(self) -> None:
        """Without a limit."""
        self.start(limit=math.inf)

    def start(self, *, limit: float) -> None:
        """Count from zero, and allow this many seconds."""
        self.gradients = 0
        self._end = time.perf_counter() + limit

    def tick(self) -> None:
        """Count a gradient, or end the run: raises ``TimeUpError``."""
        if time.perf_counter() > self._end:
            raise TimeUpError
        self.gradients += 1


class Watched(Constraint):
    """A constraint whose gradients tick."""

    def __init__(self, constraint: Constraint, watch: Watch) -> None:
        """The same constraint, under the same name."""
        super().__init__(constraint.term, constraint.bound, sense=constraint.sense)
        self.name = constraint.name
        self._watch = watch

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        self._watch.tick()
        return super().value_and_gradient(parameters)
