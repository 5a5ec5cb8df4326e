"""The histories of runs as one curve: means and standard deviations at each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.records import Record
from oneproj_paper.experiments.spread import Spread, spread

FINAL = "final"
"""The place of the point after the terminal projection, at whatever update."""

Place = tuple[int, int] | str


@dataclass(frozen=True)
class Curve:
    """A quantity against updates; the last point is after the terminal projection.

    Example:
        >>> Curve((0.0, 25.0), (Spread(2.0, 0.5, 3), Spread(1.0, 0.0, 3))).lower
        (1.5, 1.0)
    """

    updates: tuple[float, ...]
    points: tuple[Spread, ...]

    @property
    def means(self) -> tuple[float, ...]:
        """The means over runs, at each update."""
        return tuple(point.mean for point in self.points)

    @property
    def lower(self) -> tuple[float, ...]:
        """One standard deviation below; the mean itself for a single run."""
        return tuple(point.mean - (point.sd or 0.0) for point in self.points)

    @property
    def upper(self) -> tuple[float, ...]:
        """One standard deviation above."""
        return tuple(point.mean + (point.sd or 0.0) for point in self.points)


def curve(records: Sequence[Record], column: str) -> Curve | None:
    """The curve of a column of the histories; None if no run has it.

    Runs are met at the updates that all of them recorded. The point after the terminal
    projection often has the same update as the one before it: it is kept apart.

    Example:
        >>> curve([], "objective") is None
        True
    """
    tables = [_by_place(record.history, column) for record in records]
    tables = [table for table in tables if table]
    if not tables:
        return None
    shared = [
        place for place in tables[0] if all(place in table for table in tables[1:])
    ]
    updates = tuple(tables[0][place][0] for place in shared)
    values = [[table[place][1] for table in tables] for place in shared]
    return Curve(updates, tuple(spread(each) for each in values))


def _by_place(
    history: Mapping[str, Sequence[float]], column: str
) -> dict[Place, tuple[float, float]]:
    if column not in history or not history[column]:
        return {}
    pairs = list(zip(history["update"], history[column], strict=True))
    found: dict[Place, tuple[float, float]] = {}
    for update, value in pairs[:-1]:
        same = sum(place[0] == int(update) for place in found)
        found[int(update), same] = (float(update), float(value))
    update, value = pairs[-1]
    found[FINAL] = (float(update), float(value))
    return found
