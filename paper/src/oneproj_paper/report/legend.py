"""Legends: the same entries for a figure's file and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oneproj_paper.report.groups import PAPER, Group
from oneproj_paper.report.published import ONE_PROJECTION
from oneproj_paper.report.style import COLOURS, INK, SLACK, hatch, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist

Kind = Literal["line", "final", "dotted", "band", "bar", "hollow"]


@dataclass(frozen=True)
class Entry:
    """A sign and what it means.

    Example:
        >>> Entry("dotted", "threshold", INK).text
        'threshold'
    """

    kind: Kind
    text: str
    colour: str
    line: str = "-"
    marker: str = ""
    hatch: str = ""


def history_entries(groups: Sequence[Group], *, slack: bool) -> list[Entry]:
    """The legend of a training-history figure.

    Example:
        >>> [entry.kind for entry in history_entries([], slack=True)]
        ['final', 'dotted', 'band']
    """
    entries = []
    for group in groups:
        style = look(group)
        text = f"{group.method_title} ({group.projector_title})"
        if group.extrapolated:
            text += f", stopped after {group.timed[0].updates:,} updates"
        entries.append(Entry("line", text, style.colour, style.line, style.marker))
    entries.append(Entry("final", "after the terminal projection", INK))
    threshold = "threshold \u03b2" if slack else "cap on the source risk"
    entries.append(Entry("dotted", threshold, INK))
    if slack:
        entries.append(Entry("band", "\u03b2 \u00b1 slack", SLACK))
    return entries


def bar_entries(groups: Sequence[Group]) -> list[Entry]:
    """The legend of the runtime bars.

    Example:
        >>> [entry.text for entry in bar_entries([])]
        ['One Projection, the paper', 'Projected SGD, the paper']
    """
    titles = {ONE_PROJECTION: "One Projection", "projected-sgd": "Projected SGD"}
    entries = [
        Entry("hollow", f"{titles[method]}, the paper", colour)
        for method, colour in COLOURS.items()
    ]
    for group in groups:
        text = f"{group.method_title}, here"
        if group.preset != PAPER:
            text += ", oneproj's settings"
        elif group.extrapolated:
            text += ", extrapolated"
        elif group.projector == "cuts":
            text += ", with cuts"
        entry = Entry("bar", text, look(group).colour, hatch=hatch(group))
        if entry not in entries:
            entries.append(entry)
    return entries


def artists(entries: Sequence[Entry]) -> list[Artist]:
    """The signs, drawn by matplotlib."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn: list[Artist] = []
    for entry in entries:
        if entry.kind in ("bar", "hollow", "band"):
            hollow = entry.kind == "hollow"
            drawn.append(
                Patch(
                    facecolor="none" if hollow else entry.colour,
                    edgecolor=entry.colour if hollow else INK,
                    linewidth=1.2 if hollow else 0.5,
                    hatch=entry.hatch,
                    alpha=0.3 if entry.kind == "band" else None,
                )
            )
            continue
        line = {"final": "none", "dotted": ":"}.get(entry.kind, entry.line)
        marker = "D" if entry.kind == "final" else entry.marker
        mark = {"marker": marker, "markersize": 5} if marker else {}
        drawn.append(Line2D([], [], color=entry.colour, linestyle=line, **mark))  # type: ignore[arg-type]
    return drawn
