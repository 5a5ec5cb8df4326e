"""What `oneproj-paper theory` does: run, judge, write, return the records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from oneproj.files import write_text
from oneproj_paper.laboratory.figure import draw_measures
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.records import Record, judge
from oneproj_paper.laboratory.runner import run_plans
from oneproj_paper.laboratory.tables import markdown_table


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
