"""The record of a run: what each update saw, and how long each phase took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oneproj.results import Update
from oneproj.schema import (
    AbstractSchema,
    AsIs,
    EmptyOr,
    Fields,
    Integer,
    Items,
    Maybe,
    Named,
    Number,
    require,
)

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
        self.seconds_before = 0.0
        """Of the run that this one resumes."""
        self._outer: int | None = None
        self._constraints = tuple(constraints)
        names = ("update", "objective", "seconds", *self._constraints)
        self.columns: dict[str, list[float]] = {name: [] for name in names}
        self._pending: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the run began, but for those between a stop and its resume."""
        return self.seconds_before + time.perf_counter() - self._start

    def add(
        self,
        update: int,
        objective: float,
        residuals: Mapping[str, float],
        outer: int | None = None,
    ) -> Update:
        """Record an update if it is its turn, and describe it for the callbacks."""
        seconds = self.seconds
        row = {"update": update, "objective": objective, "seconds": seconds}
        self._pending = row | {name: residuals[name] for name in self._constraints}
        if update % self._every == 0 or update == self.steps:
            self.close()
        closed = outer is not None and outer != (self._outer or 0)
        self._outer = outer
        values = dict(residuals)
        return Update(update, self.steps, objective, values, seconds, outer, closed)

    def close(self) -> None:
        """Record the last update, whether or not it was its turn."""
        for name, value in self._pending.items():
            self.columns[name].append(value)
        self._pending = {}

    def state_dict(self) -> dict[str, Any]:
        """What was recorded, and the seconds so far."""
        return {
            "columns": {name: list(column) for name, column in self.columns.items()},
            "pending": dict(self._pending),
            "outer": self._outer,
            "seconds": self.seconds,
        }

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        return _HistorySchema(tuple(self.columns), self.steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a record; its seconds count, those in between do not.

        Example:
            >>> first, second = History([], steps=2), History([], steps=2)
            >>> _ = first.add(1, 0.5, {})
            >>> second.load_state_dict(first.state_dict())
            >>> second.add(2, 0.4, {}).update, second.columns["objective"]
            (2, [0.5, 0.4])
        """
        self.columns = {name: list(column) for name, column in state["columns"].items()}
        self._pending, self._outer = dict(state["pending"]), state["outer"]
        self.seconds_before = state["seconds"]
        self._start = time.perf_counter()


@dataclass(frozen=True)
class _HistorySchema(AbstractSchema):
    """Columns of one length, and a row that is not in them yet, or none."""

    names: tuple[str, ...]
    steps: int

    def check(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever a file had
        number = AsIs(Number())  # a method may have seen no objective yet: NaN
        column = Items(number, most=MAX_ROWS + self.steps)
        state: dict[str, Any] = Fields(
            {
                "columns": Named(column, self.names, complete=True),
                "pending": EmptyOr(Named(number, self.names, complete=True)),
                "outer": Maybe(Integer(least=0)),
                "seconds": Number(least=0.0, finite=True),
            }
        ).check(value, where)
        columns = state["columns"]
        lengths = {len(column) for column in columns.values()}
        require(len(lengths) == 1, lengths, f"{where}.columns", "of one length")
        place = AsIs(Integer(least=1, most=self.steps))
        pending = [state["pending"]["update"]] if state["pending"] else []
        for update in (*columns["update"], *pending):
            place.check(update, f"{where}.columns.update")
        return state


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

    def lap(self, phase: str, before: float = 0.0) -> None:
        """End a phase and start the next; ``before`` was spent on it in another run."""
        now = time.perf_counter()
        self.laps[phase] = before + now - self._last
        self._last = now
