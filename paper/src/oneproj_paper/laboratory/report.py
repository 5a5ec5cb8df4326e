"""What `oneproj-paper theory` does: run, judge, write, return the records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oneproj.files import write_text
from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory.checkpoints import Trajectory
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.records import Record, judge
from oneproj_paper.laboratory.runner import run_plans
from oneproj_paper.laboratory.tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOOR = 1e-6
"""Smaller measures are drawn here: the axis is logarithmic."""
SYMBOLS = {
    "G_ell": r"$\mathcal{G}_\ell$ at the output",
    "S_ell": r"$\mathcal{S}_\ell$ at the output",
    "R_{lambda,beta}": r"$\mathcal{R}_{\lambda,\beta}$ at $x_t$",
}
INK, LINE, TARGET = "#333333", "#2f6db3", "#b3402f"


def draw_measures(
    plans: Sequence[Plan], trajectories: Mapping[str, Sequence[Trajectory]], stem: Path
) -> list[Path]:
    """Draw one panel per theorem and save it as PNG and SVG.

    Each line is the measure that a trial would have returned, had J been t; a ring
    marks the J that was drawn. The points are evaluated after the run, for this figure
    only: the algorithm computes one projection and no measure.

    Args:
        plans: the rows.
        trajectories: their trajectories, by key.
        stem: where to save, without the suffix.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # A fixed salt keeps the identifiers in the SVG, and so the file, the same.
    with mpl.rc_context({"svg.hashsalt": "oneproj", "font.size": 9}):
        figure = Figure(figsize=(3.6 * len(plans), 3.3), layout="constrained")
        for number, plan in enumerate(plans, start=1):
            axes = figure.add_subplot(1, len(plans), number)
            groups = trajectories[plan.problem.key]
            _draw_panel(axes, plan, np.concatenate([g.path for g in groups], axis=1))
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    return files


def _draw_panel(axes: Axes, plan: Plan, path: Array) -> None:
    """Draw the measure of every trial against t + 1, both axes logarithmic."""
    problem, T = plan.problem, plan.schedule.outer_steps
    flat = problem.measure(path.reshape(-1, 2))
    values = np.maximum(flat.reshape(path.shape[:2]), FLOOR)
    t = np.arange(T + 1) + 1
    axes.loglog(t, values, color=LINE, linewidth=0.8, alpha=0.6)
    drawn = np.array(plan.selected)
    chosen = values[drawn, np.arange(plan.trials)]
    axes.loglog(drawn + 1, chosen, "o", mfc="none", mec=INK, ms=5)
    axes.axhline(problem.epsilon, color=TARGET, linestyle=":", linewidth=1.4)
    axes.annotate(
        r"$\epsilon$",
        (T + 1, problem.epsilon),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=TARGET,
    )
    axes.set_title(f"{problem.key.replace('-', ' ').capitalize()}\n{problem.title}")
    axes.title.set_fontsize(8)
    axes.set_xlabel("outer iteration t + 1")
    axes.set_ylabel(SYMBOLS[problem.measure_name])
    axes.set_ylim(FLOOR / 2, 4 * problem.start_measure)
    axes.spines[["top", "right"]].set_visible(False)


def check_theorems(
    plans: list[Plan],
    *,
    out: Path,
    jobs: int,
    fresh: bool = False,
    report: Callable[[str, int], None] = lambda _key, _steps: None,
) -> list[Record]:
    """Execute the plans and write the table, the records and the figure to ``out``.

    Files: one ``<row>.json`` per row, ``theory.json`` with all of them, ``theory.md``,
    ``theory.png``, ``theory.svg``, and ``checkpoints/`` from which a stopped run
    continues.

    Args:
        plans: the rows.
        out: the folder, made if need be.
        jobs: threads.
        fresh: forget the checkpoints and start again.
        report: called with a row's key and the trial-iterations just made.
    """
    folder = out / "checkpoints"
    if fresh and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    trajectories = run_plans(plans, folder=folder, jobs=jobs, report=report)
    records = [judge(plan, trajectories[plan.problem.key]) for plan in plans]
    for record in records:
        _write_json(out / f"{record.key}.json", record.to_dict())
    _write_json(out / "theory.json", [record.to_dict() for record in records])
    write_text(out / "theory.md", markdown_table(records))
    draw_measures(plans, trajectories, out / "theory")
    return records


def _write_json(file: Path, content: object) -> None:
    write_text(file, json.dumps(content, indent=2) + "\n")
