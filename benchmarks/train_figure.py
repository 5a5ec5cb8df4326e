"""The anytime plot of ``bench train``: what a run is worth if it ends now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.train_bars import problems_of
from benchmarks.train_contestants import (
    MINE,
    MINE_PAPER,
    REFERENCE,
    RIVAL,
    RIVAL_CARED_FOR,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES: dict[str, dict[str, Any]] = {
    MINE: {"color": "#0b5fa5", "linewidth": 2.2, "zorder": 5},
    MINE_PAPER: {"color": "#0b5fa5", "linestyle": ":"},
    RIVAL: {"color": "#b3402f"},
    RIVAL_CARED_FOR: {"color": "#b3402f", "linestyle": ":"},
    REFERENCE: {"color": "#333333", "linestyle": "--"},
    "penalty-sgd": {"color": "#2b8a4b"},
    "penalty-sgd, adam": {"color": "#2b8a4b", "linestyle": ":"},
    "lagrangian": {"color": "#8457a8"},
    "lagrangian, adam": {"color": "#8457a8", "linestyle": ":"},
    "switching-subgradient": {"color": "#c98a12"},
    "switching-subgradient, adam": {"color": "#c98a12", "linestyle": ":"},
    "cooper": {"color": "#7a7a7a"},
    "humancompatible-train": {"color": "#7a7a7a", "linestyle": "--"},
    "mdmm": {"color": "#7a7a7a", "linestyle": ":"},
}
"""A colour per method; dots are its other settings. Who is not here is not drawn."""
LINE: dict[str, Any] = {"linewidth": 1.2, "marker": ".", "markersize": 3}
FLOOR = 1e-4
"""The residual axis is linear below this."""


def draw_anytime(record: Mapping[str, Any], out: Path) -> list[Path]:
    """Draw one pair of panels per problem, and save beside ``out`` as PNG and SVG.

    Above, the objective on all data after the projection of a copy; below, the worst
    residual before it; both against seconds, for the seed that was traced. Points whose
    projection failed are left out above.

    Args:
        record: Of ``bench train``.
        out: Where the record is; the figures take its name.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    problems = problems_of(record)
    if not problems:
        return []
    # A fixed salt keeps the identifiers in the SVG, and so the file, the same.
    with mpl.rc_context({"svg.hashsalt": "oneproj", "font.size": 8}):
        size = (3.4 * max(2, len(problems)), 6.4)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(2, len(problems), sharex="col", squeeze=False)
        for column, problem in enumerate(problems):
            runs = _traced(record, problem)
            _draw_objectives(panels[0, column], runs)
            _draw_residuals(panels[1, column], runs)
            panels[0, column].set_title(problem)
        panels[0, 0].set_ylabel("objective after projection")
        panels[1, 0].set_ylabel("worst residual before projection")
        shown = {
            line.get_label(): line for axes in panels[0] for line in axes.get_lines()
        }
        order = [name for name in STYLES if name in shown]
        figure.legend(
            [shown[name] for name in order],
            order,
            loc="outside lower center",
            ncols=min(len(order), 5) or 1,
            frameon=False,
        )
        files = [out.with_suffix(".png"), out.with_suffix(".svg")]
        figure.savefig(files[0], dpi=130)
        figure.savefig(files[1], metadata={"Date": None})
    return files


def _traced(record: Mapping[str, Any], problem: str) -> list[Mapping[str, Any]]:
    return [
        run
        for run in record["runs"]
        if run["problem"] == problem
        and run["contestant"] in STYLES
        and run.get("trace")
    ]


def _draw_objectives(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    for run in runs:
        points = [p for p in run["trace"] if p["residual"] <= 0]
        if points:
            seconds = [p["seconds"] for p in points]
            values = [p["objective"] for p in points]
            name = run["contestant"]
            axes.plot(seconds, values, label=name, **LINE | STYLES[name])
    _finish(axes)
    axes.set_yscale("log")  # the six objectives are losses


def _draw_residuals(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    for run in runs:
        seconds = [p["seconds"] for p in run["trace"]]
        values = [p["residual_before"] for p in run["trace"]]
        axes.plot(seconds, values, **LINE | STYLES[run["contestant"]])
    _finish(axes)
    axes.axhline(0.0, color="#999999", linewidth=0.8)
    axes.set_yscale("symlog", linthresh=FLOOR)
    axes.set_xlabel("seconds")


def _finish(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)
