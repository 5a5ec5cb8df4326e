"""The record of a run: what each update saw, and how long each phase took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from oneproj.results import Update

MAX_ROWS = 1000
"""Longer runs record every n-th update, so that a long run stays small in memory."""


class History:
    """Collects what the method saw: update, objective, seconds, and each residual.

    Example:
        >>> history = History(["cap"], steps=2)
        >>> _ = history.add(1, 0.5, {"cap": 0.1}); _ = history.add(2, 0.4, {"cap": 0.0})
        >>> history.columns["objective"], history.columns["cap"]
        ([0.5, 0.4], [0.1, 0.0])
    """

    def __init__(self, constraints: Iterable[str], steps: int) -> None:
        """Start the clock."""
        self.steps = steps
        self._every = -(-steps // MAX_ROWS)
        self._start = time.perf_counter()
        self._constraints = tuple(constraints)
        names = ("update", "objective", "seconds", *self._constraints)
        self.columns: dict[str, list[float]] = {name: [] for name in names}
        self._pending: dict[str, float] = {}

    def add(
        self, update: int, objective: float, residuals: Mapping[str, float]
    ) -> Update:
        """Record an update if it is its turn, and describe it for the callbacks."""
        seconds = time.perf_counter() - self._start
        row = {"update": update, "objective": objective, "seconds": seconds}
        self._pending = row | {name: residuals[name] for name in self._constraints}
        if update % self._every == 0 or update == self.steps:
            self.close()
        return Update(update, self.steps, objective, dict(residuals), seconds)

    def close(self) -> None:
        """Record the last update, whether or not it was its turn."""
        for name, value in self._pending.items():
            self.columns[name].append(value)
        self._pending = {}


class Stopwatch:
    """Seconds per phase, in the order in which the phases ended.

    Example:
        >>> watch = Stopwatch(); watch.lap("train"); list(watch.laps)
        ['train']
    """

    def __init__(self) -> None:
        """Start the first phase."""
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase and start the next."""
        now = time.perf_counter()
        self.laps[phase] = now - self._last
        self._last = now
