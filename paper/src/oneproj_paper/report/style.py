"""How methods look: the paper's colours, and signs that need no colour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oneproj_paper.report.groups import PAPER, Group
from oneproj_paper.report.published import ONE_PROJECTION

INK, GRID, SLACK = "#222222", "#d8d8d8", "#a0a0a0"
"""Text and axes, grid lines, slack bands; ``inline`` makes them follow the theme."""
COLOURS = {ONE_PROJECTION: "#0072B2", "projected-sgd": "#D55E00"}
"""The paper's two, which colour-blind readers tell apart."""
OTHER = "#7f7f7f"


@dataclass(frozen=True)
class Look:
    """A colour, and a marker and line that say the same in black and white.

    Example:
        >>> look(Group("abstention-nasa", "paper", "one-projection", "cuts", ())).marker
        'o'
    """

    colour: str
    marker: str
    line: str


def look(group: Group) -> Look:
    """How the runs of a group are drawn.

    Example:
        >>> look(Group("abstention-nasa", "paper", "projected-sgd", "cuts", ())).line
        ':'
    """
    colour = COLOURS.get(group.method, OTHER)
    if group.method == ONE_PROJECTION:
        return Look(colour, "o", "-")
    # Two projectors of Projected SGD may share a figure.
    return (
        Look(colour, "^", ":") if group.projector == "cuts" else Look(colour, "s", "--")
    )


def hatch(group: Group) -> str:
    """The pattern of a bar: none for the paper's settings and projector.

    Example:
        >>> hatch(Group("abstention-nasa", "oneproj", "one-projection", "cuts", ()))
        '//'
    """
    if group.preset != PAPER:
        return "//"
    if group.extrapolated:
        return ".."
    return "xx" if group.projector == "cuts" else ""


@contextmanager
def figure_style() -> Iterator[None]:
    """Settings of matplotlib under which every figure is drawn and saved."""
    import matplotlib as mpl

    style: dict[Any, Any] = {
        # A fixed salt keeps the identifiers in the SVG, and so the file, the same.
        "svg.hashsalt": "oneproj",
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.labelsize": 9,
        "legend.fontsize": 8,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.6,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        yield
