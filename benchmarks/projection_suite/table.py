"""A record summed up: a row for every family and label."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.projection_suite.cases import Instance
from benchmarks.projection_suite.record import Record, is_false, is_nearest

TITLES = (
    "family",
    "label",
    "problems",
    "ended well",
    "nearest",
    "mean gradients",
    "median",
    "false",
    "errors",
)


def table(record: Record, instances: Sequence[Instance], labels: Sequence[str]) -> str:
    """The rows as text, one line each.

    ``ended well``: the share that is feasible, or infeasible where there is no feasible
    point. ``nearest``: the share within 0.1 % of the best distance known.
    """
    families = list(dict.fromkeys(i.family for i in instances))
    rows: list[tuple[str, ...]] = [TITLES]
    for family in [*families, "all"]:
        keys = [i.key for i in instances if family in {i.family, "all"}]
        for label in labels:
            runs = record.runs.get(label, {})
            found = {key: runs[key] for key in keys if key in runs}
            if found:
                rows.append((family, label, *_row(record, found)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(TITLES))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _row(record: Record, found: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    n, well, near, false = len(found), 0, 0, 0
    for key, run in found.items():
        best = record.nearest(key)
        source = record.best.get(key, {}).get("source")
        empty = source == "empty"
        well += (
            (not run["feasible"] and "error" not in run) if empty else run["feasible"]
        )
        near += is_nearest(run, best)
        exact = source in {"closed form", "clarabel", "slsqp"}
        false += is_false(run, None if empty else best, exact=exact)
    counts = [run["gradients"] for run in found.values() if "gradients" in run]
    average = f"{statistics.mean(counts):.1f}" if counts else ""
    middle = f"{statistics.median(counts):.0f}" if counts else ""
    errors = sum("error" in run for run in found.values())
    shares = f"{well / n:.3f}", f"{near / n:.3f}"
    return str(n), *shares, average, middle, str(false), str(errors)
