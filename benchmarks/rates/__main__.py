"""``python -m benchmarks.rates``: real rates through ``solve``, against references.

Every problem is solved with the library's defaults. It counts as solved if the counts
are feasible and the objective is at most ``WITHIN`` times the better reference. Results
are kept in a record, so that a run can be continued and repeated in part.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch

import oneproj
from benchmarks.rates.adult import adult_folder
from benchmarks.rates.problems import PROBLEMS, RateProblem, build
from benchmarks.rates.reference import Reference, refer

RECORD = Path(__file__).parent / "record.json"
WITHIN = 1.03
"""The objective may be larger than that of the better reference by this factor."""


def run_problem(problem: RateProblem, *, steps: int = 500) -> dict[str, Any]:
    """Solve a problem; returns plain data."""
    instance = build(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oneproj.OneprojWarning)
        solution = oneproj.solve(
            instance.problem(), steps=steps, progress=False, on_failure="return"
        )
    return {
        "feasible": solution.feasible,
        "objective": solution.objective,
        "worst": max(solution.residuals.values()),
        "before": max(solution.projection.residuals_before.values(), default=0.0),
        "projection": solution.projection.evaluations,
        "gradients": solution.counts.constraint_gradients,
        "projections": solution.counts.projections,
    }


def is_solved(found: dict[str, Any], reference: Reference) -> bool:
    """Whether the counts hold, and the objective is near the better reference.

    A problem that no reference solves counts as solved if the counts hold.
    """
    within = found["objective"] <= WITHIN * reference.best
    return bool(found["feasible"]) and (within or math.isinf(reference.best))


def show(record: dict[str, Any]) -> str:
    """The record as a table, with how many problems are solved."""
    head = "ours", "threshold", "tuned cap", "worst count", "gradients"
    lines = ["{:32} {:>8} {:>10} {:>10} {:>12} {:>10}".format("problem", *head)]
    solved = 0
    for name, row in record.items():
        reference = Reference(*map(float, row["reference"]))
        found, met = row["ours"], is_solved(row["ours"], reference)
        solved += met
        lines.append(
            f"{name:32} {found['objective']:8.4f} {reference.threshold:10.4f} "
            f"{reference.surrogate:10.4f} {found['worst']:12.1e} "
            f"{found['gradients']:10d}{'' if met else '  MISSED'}"
        )
    feasible = sum(row["ours"]["feasible"] for row in record.values())
    total = len(record)
    lines.append(f"feasible counts: {feasible} of {total}; solved: {solved} of {total}")
    return "\n".join(lines)


def main() -> None:
    """Run what was asked for, and show the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all if left out")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--again", action="store_true", help="solve again")
    parser.add_argument("--show", action="store_true", help="only show the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = arguments.record
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for name, problem in PROBLEMS.items():
        asked = not arguments.names or any(part in name for part in arguments.names)
        absent = "adult" in name and adult_folder() is None
        done = name in record and not arguments.again
        if arguments.show or not asked or absent or done:
            continue
        known = record.get(name, {}).get("reference")
        row: dict[str, Any] = {"ours": run_problem(problem)}
        row["reference"] = known or [str(value) for value in refer(problem)]
        record[name] = row
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(name, row, flush=True)
    print(show(record))


if __name__ == "__main__":
    main()
