"""The runtime bars: both methods, ours and the paper's, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oneproj_paper.report.groups import Group, task_of
from oneproj_paper.report.published import EXPERIMENTS, RESULTS
from oneproj_paper.report.quantities import RUNTIME
from oneproj_paper.report.style import COLOURS, INK, hatch, look
from oneproj_paper.report.tables import data_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.8
"""Of the bars of one experiment together; experiments are 1 apart."""
FLOOR = 0.1
"""Where the axis begins, unless a bar is shorter."""


@dataclass(frozen=True)
class Bar:
    """One bar of a figure.

    Example:
        >>> Bar("#0072B2", 9.74, 0.23, paper=True).hatch
        ''
    """

    colour: str
    seconds: float
    sd: float | None
    paper: bool = False
    """The paper's own: hollow."""
    hatch: str = ""


def bars_of(experiment: str, groups: Sequence[Group]) -> list[Bar]:
    """The paper's bar and ours, method by method.

    Example:
        >>> [bar.seconds for bar in bars_of("abstention-nasa", [])]
        [4.91, 940.3]
    """
    bars = []
    for method, row in RESULTS[experiment].items():
        printed = row.numbers["runtime"]
        bars.append(Bar(COLOURS[method], printed.mean, printed.sd, paper=True))
        for group in groups:
            runtime = RUNTIME.spread(group.timed)
            if (group.experiment, group.method) == (experiment, method) and runtime:
                mine = (look(group).colour, runtime.mean, runtime.sd)
                bars.append(Bar(*mine, hatch=hatch(group)))
    return bars


def draw_bars(axes: Axes, task: str, groups: Sequence[Group]) -> None:
    """Draw the bars of one task's experiments.

    Args:
        axes: Where to draw.
        task: ``"transfer"`` or ``"abstention"``.
        groups: Of all runs.
    """
    names = [name for name in EXPERIMENTS if task_of(name) == task]
    bars = [bars_of(name, groups) for name in names]
    width = WIDTH / max(len(each) for each in bars)
    for place, each in enumerate(bars):
        for i, bar in enumerate(each):
            _draw_bar(axes, bar, place + (i - (len(each) - 1) / 2) * width, width)
    lowest = min(FLOOR, *(bar.seconds / 2 for each in bars for bar in each))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=lowest)
    axes.set_xticks(range(len(names)), [_tick(name, groups) for name in names])
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("runtime (s)")
    titles = {"transfer": "Transfer", "abstention": "Classification with abstention"}
    axes.set_title(titles[task])


def _draw_bar(axes: Axes, bar: Bar, x: float, width: float) -> None:
    axes.bar(
        x,
        bar.seconds,
        width * 0.86,
        color="none" if bar.paper else bar.colour,
        edgecolor=bar.colour if bar.paper else INK,
        linewidth=1.2 if bar.paper else 0.5,
        hatch=bar.hatch,
    )
    if bar.sd:
        # A bar that reaches below zero has no place on a logarithmic axis.
        below = min(bar.sd, bar.seconds * 0.99)
        axes.errorbar(
            x,
            bar.seconds,
            yerr=[[below], [bar.sd]],
            color=INK,
            capsize=2,
            linewidth=0.9,
        )


def _tick(name: str, groups: Sequence[Group]) -> str:
    title = data_title(name).replace(" ", "\n", 1)
    if any(group.experiment == name and group.stand_in for group in groups):
        title += "\n(stand-in)"
    return title
