"""A picture of what one projection did."""

from __future__ import annotations

from typing import Any

from oneproj.errors import InvalidProblemError
from oneproj.progress import require
from oneproj.results import Projection


def plot_history(
    projection: Projection,
    ax: Any = None,  # noqa: ANN401 - axes of matplotlib
) -> Any:  # noqa: ANN401 - axes of matplotlib
    """Draw the distance and the worst residual of every visited point.

    Distances are on the left axis, filled where the point was feasible. What was
    violated is on the right one, logarithmic. Needs matplotlib (the extra ``learn``).

    Args:
        projection: With a history: what ``oneproj.project`` returned, or
            ``solution.projection``.
        ax: Axes of matplotlib; None for new ones.

    Returns:
        The axes.

    Raises:
        InvalidProblemError: The projection has no history.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0, 1.0], requires_grad=True)
        >>> done = oneproj.project(w, {"size": oneproj.function(w.norm) <= 1.0})
        >>> plot_history(done).get_xlabel()
        'full constraint gradients'
    """
    if not projection.history:
        message = (
            "This projection has no history to draw: its answer took no search, as "
            "that of closed-form sets does. Draw one that bounds a function."
        )
        raise InvalidProblemError(message)
    if ax is None:
        _, ax = require("matplotlib.pyplot", "learn").subplots(layout="constrained")
    looks, worst, far = zip(*projection.history, strict=True)
    feasible = [residual <= 0 for residual in worst]
    ax.plot(looks, far, color="tab:blue", linewidth=1)
    for filled, label in ((True, "distance, feasible"), (False, "distance, not yet")):
        at = [k for k, met in enumerate(feasible) if met == filled]
        face = "tab:blue" if filled else "white"
        ax.scatter(
            [looks[k] for k in at],
            [far[k] for k in at],
            s=18,
            facecolor=face,
            edgecolor="tab:blue",
            label=label,
            zorder=3,
        )
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("full constraint gradients")
    ax.set_ylabel("distance from the start")
    right = ax.twinx()
    violated = [residual if residual > 0 else float("nan") for residual in worst]
    right.semilogy(looks, violated, color="tab:red", linestyle=":", label="violation")
    right.set_ylabel("worst residual")
    lines = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    # Above the axes: inside them it would cover the last points, which count most.
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(lines)}
    right.legend(lines, [line.get_label() for line in lines], fontsize=8, **place)
    return ax
