"""Every figure: inside the page, panel by panel, and as SVG, PNG and PDF files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oneproj.files import replacing
from oneproj_paper.report.bars import draw_bars
from oneproj_paper.report.groups import OWN, PAPER, PRESETS, Group, commands_of, task_of
from oneproj_paper.report.history_figure import draw_panel, panels
from oneproj_paper.report.inline import inline_svg
from oneproj_paper.report.legend import Entry, artists, bar_entries, history_entries
from oneproj_paper.report.published import EXPERIMENTS
from oneproj_paper.report.style import figure_style
from oneproj_paper.report.tables import command_for, data_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = ("svg", "png", "pdf")
DPI = 160
PANEL_SIZE, BAR_SIZE = (3.6, 2.7), (4.4, 3.0)
"""Inches; a panel is as wide as a phone on the page."""
MARGINS = {"left": 0.15, "right": 0.98, "bottom": 0.17, "top": 0.91}
"""Of a panel on the page: fixed, so that panels line up and no layout is solved."""
TASKS = ("transfer", "abstention")


@dataclass(frozen=True)
class Drawing:
    """A panel on the page.

    Example:
        >>> Drawing("<svg/>", "Source risk against updates.").alt
        'Source risk against updates.'
    """

    svg: str
    alt: str


@dataclass(frozen=True)
class FigureEntry:
    """A figure with everything around it; without records, the command that makes it.

    Example:
        >>> FigureEntry("f", "F", "What it shows.", missing="a command").panels
        ()
    """

    key: str
    """Names its files."""
    title: str
    caption: str
    panels: tuple[Drawing, ...] = ()
    legend: tuple[Entry, ...] = ()
    commands: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class _Part:
    """A panel to draw: the function for it, its size, and its alternative text."""

    draw: Callable[[Axes], None]
    size: tuple[float, float]
    alt: str


def bar_figure(groups: Sequence[Group], folder: Path) -> FigureEntry:
    """The runtime bars of both tasks.

    Args:
        groups: Of all runs.
        folder: For the files.
    """
    parts = [
        _Part(
            lambda axes, task=task: draw_bars(axes, task, groups),  # type: ignore[misc]
            BAR_SIZE,
            f"Runtimes of the {task} experiments in seconds, logarithmic scale: one "
            "bar per method, the paper's hollow, ours filled. The table below has "
            "the numbers.",
        )
        for task in TASKS
    ]
    entries = bar_entries(groups)
    drawn = _draw("runtime-bars", parts, entries, folder)
    return FigureEntry(
        key="runtime-bars",
        title="Training runtime",
        caption=(
            "Mean and one sample standard deviation, logarithmic scale. Transfer "
            "includes the source fit. Hollow bars are the paper's, of its machine."
        ),
        panels=drawn,
        legend=tuple(entries),
        commands=commands_of(groups),
    )


def history_figures(groups: Sequence[Group], folder: Path) -> list[FigureEntry]:
    """The six training histories, of the paper's preset and of ours where it was run.

    Args:
        groups: Of all runs.
        folder: For the files.
    """
    found = []
    for name in EXPERIMENTS:
        for preset in (PAPER, OWN):
            mine = [g for g in groups if (g.experiment, g.preset) == (name, preset)]
            if mine or preset == PAPER:
                found.append(_history_figure(name, preset, mine, folder))
    return found


def _history_figure(
    name: str, preset: str, groups: Sequence[Group], folder: Path
) -> FigureEntry:
    task = task_of(name)
    key = f"history-{name}-{preset}"
    title = f"{task.capitalize()}, {data_title(name)}: {PRESETS[preset]} settings"
    if not groups:
        missing = command_for(name, preset)
        return FigureEntry(key, title, _caption(task), missing=missing)
    parts = [
        _Part(
            lambda axes, panel=panel: draw_panel(axes, panel, groups),  # type: ignore[misc]
            PANEL_SIZE,
            f"{panel.title} against updates, for "
            f"{' and '.join(dict.fromkeys(g.method_title for g in groups))}; "
            f"{data_title(name)} data, {PRESETS[preset]} settings.",
        )
        for panel in panels(task)
    ]
    entries = history_entries(groups, slack=task == "abstention")
    return FigureEntry(
        key=key,
        title=title,
        caption=_caption(task),
        panels=_draw(key, parts, entries, folder),
        legend=tuple(entries),
        commands=commands_of(groups),
        flags=("stand-in",) if any(group.stand_in for group in groups) else (),
    )


def _caption(task: str) -> str:
    common = (
        "Points are means over the runs on the full training data, bands one sample "
        "standard deviation. "
    )
    if task == "transfer":
        return common + "Each method is shown over its own budget of updates."
    return common + (
        "Thresholds have a method's colour where methods differ. The constraint that "
        "is enforced is risk <= \u03b2 + slack, the upper edge of the grey band; the "
        "band is no confidence interval."
    )


def _draw(
    key: str, parts: Sequence[_Part], entries: Sequence[Entry], folder: Path
) -> tuple[Drawing, ...]:
    """Draw the panels side by side into files, and each alone for the page."""
    from matplotlib.figure import Figure

    drawn = []
    with figure_style():
        width = sum(part.size[0] for part in parts)
        height = max(part.size[1] for part in parts) + 0.5
        whole = Figure(figsize=(width, height), layout="constrained")
        for axes, part in zip(whole.subplots(1, len(parts)), parts, strict=True):
            part.draw(axes)
        labels = [entry.text for entry in entries]
        whole.legend(
            *(artists(entries), labels),
            loc="outside lower center",
            ncols=min(len(entries), 3),
            frameon=False,
        )
        whole.draw_without_rendering()  # solves the layout, once for all files
        whole.set_layout_engine("none")
        for suffix in SUFFIXES:
            stamp = {"pdf": "CreationDate", "svg": "Date"}.get(suffix)
            metadata = {} if stamp is None else {stamp: None}
            with replacing(folder / f"{key}.{suffix}") as draft:
                whole.savefig(draft, format=suffix, dpi=DPI, metadata=metadata)
        for number, part in enumerate(parts, start=1):
            alone = Figure(figsize=part.size)
            alone.subplots_adjust(**MARGINS)
            part.draw(alone.add_subplot())
            drawn.append(Drawing(inline_svg(alone, f"{key}-{number}"), part.alt))
    return tuple(drawn)
