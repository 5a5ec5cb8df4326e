"""A training-history figure: three panels of curves, bands, thresholds and slack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.spread import Spread, spread
from oneproj_paper.report.groups import Group
from oneproj_paper.report.quantities import SOURCE
from oneproj_paper.report.style import INK, SLACK, look

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


if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_RANGE = 3.0
"""An axis whose values span more than this factor is logarithmic."""
BAND_FLOOR = 0.5
"""A logarithmic axis reaches down to this part of the lowest mean, bands may go on."""
SHORT = 50.0
"""A logarithmic axis that spans less than this factor has ticks at 2 and 5 too."""
MARKER_DISTANCE = 0.09
"""Between two markers, in diagonals of the panel: at every point they would merge."""


@dataclass(frozen=True)
class Panel:
    """What one panel shows: a column of the histories.

    Example:
        >>> [panel.column for panel in panels("transfer")]
        ['validation risk', 'objective', 'source risk']
    """

    title: str
    column: str
    constraint: str = ""
    """Whose threshold is drawn."""
    place: int = 0
    """Of that constraint among the thresholds."""


def panels(task: str) -> tuple[Panel, ...]:
    """The three panels of a task, in the paper's order.

    Example:
        >>> [panel.title for panel in panels("abstention")]
        ['Surrogate objective', 'Class 0 surrogate risk', 'Class 1 surrogate risk']
    """
    if task == "transfer":
        return (
            Panel("Target validation risk", "validation risk"),
            Panel("Target training risk", "objective"),
            Panel("Source risk", SOURCE, SOURCE),
        )
    names = ("class 0 error", "class 1 error")
    return (
        Panel("Surrogate objective", "objective"),
        *(
            Panel(f"Class {j} surrogate risk", name, name, j)
            for j, name in enumerate(names)
        ),
    )


def draw_panel(axes: Axes, panel: Panel, groups: Sequence[Group]) -> None:
    """Draw the curves of one preset: means, bands, thresholds, slack, final points.

    Args:
        axes: Where to draw.
        panel: What to draw.
        groups: Of one experiment and preset.
    """
    curves = [
        (g, found)
        for g in groups
        if (found := curve(g.finished or g.timed, panel.column))
    ]
    _draw_limits(axes, panel, groups)
    for group, found in curves:
        _draw_curve(axes, group, found)
    if _spans_decades([found for _, found in curves]):
        _make_logarithmic(axes, min(min(found.means) for _, found in curves))
    axes.set_title(panel.title)
    axes.set_xlabel("updates")
    axes.margins(x=0.03)


def _draw_curve(axes: Axes, group: Group, found: Curve) -> None:
    style = look(group)
    axes.fill_between(
        *(found.updates, found.lower, found.upper),
        color=style.colour,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(
        *(found.updates, found.means),
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markevery=MARKER_DISTANCE,
        markersize=3.5,
        linewidth=1.3,
    )
    axes.plot(  # after the terminal projection
        *(found.updates[-1:], found.means[-1:]),
        color=style.colour,
        marker="D",
        markersize=6.5,
        markeredgecolor=INK,
        markeredgewidth=0.9,
        linestyle="none",
        zorder=5,
    )


def _draw_limits(axes: Axes, panel: Panel, groups: Sequence[Group]) -> None:
    """Dotted thresholds, each once, in a method's colour where methods differ."""
    if not panel.constraint:
        return
    limits = {group.method: _limit(group, panel) for group in groups}
    distinct = set(limits.values())
    for method, (level, slack) in limits.items():
        shared = len(distinct) == 1
        colour = INK
        if not shared:
            colour = next(look(g).colour for g in groups if g.method == method)
        if slack:
            axes.axhspan(
                level - slack, level + slack, color=SLACK, alpha=0.3, linewidth=0
            )
        axes.axhline(level, color=colour, linestyle=":", linewidth=1.4)
        if shared:
            return


def _limit(group: Group, panel: Panel) -> tuple[float, float]:
    """The level of the dotted line, and half the width of the grey band."""
    settings = group.records[0].settings
    if panel.constraint == SOURCE or not settings.get("thresholds"):
        return float(settings["caps"][panel.constraint]), 0.0
    slack = settings.get("slack") or (0.0, 0.0)
    return float(settings["thresholds"][panel.place]), float(slack[panel.place])


def _make_logarithmic(axes: Axes, lowest: float) -> None:
    """Ticks in plain numbers, more of them where the axis is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    # What is not positive has no logarithm: such edges of a band lie below the axis.
    axes.set_yscale("log", nonpositive="clip")
    bottom, high = axes.get_ylim()
    low = max(bottom, lowest * BAND_FLOOR)
    axes.set_ylim(low, high)
    subs = (1.0, 2.0, 5.0) if high < SHORT * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _spans_decades(curves: Sequence[Curve]) -> bool:
    values = [value for found in curves for value in found.means]
    usable = values and min(values) > 0 and all(math.isfinite(v) for v in values)
    return bool(usable) and max(values) / min(values) > LOG_RANGE
