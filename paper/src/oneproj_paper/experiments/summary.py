"""Records in a few lines: means and standard deviations over the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.spread import spread


@dataclass(frozen=True)
class Column:
    """A metric on test data, as a table shows it."""

    metric: str
    heading: str
    scale: float
    digits: int


COLUMNS = {
    "abstention": (
        Column("class_0_error", "class 0 error (%)", 100.0, 2),
        Column("class_1_error", "class 1 error (%)", 100.0, 2),
        Column("ambiguity", "ambiguity (%)", 100.0, 2),
    ),
    "transfer": (
        Column("error", "target error (%)", 100.0, 2),
        Column("risk", "target risk", 1.0, 3),
    ),
}
"""Those of the paper's tables of results, by task."""
SECONDS_DIGITS = 2


def summaries(records: Sequence[Record]) -> dict[str, list[tuple[str, ...]]]:
    """A table for each experiment, on test data; the first row is the heading.

    The title of an experiment on data that stands in for the paper's says so. A run
    that was stopped on purpose has no metrics to show, only a runtime.

    Example:
        >>> summaries([])
        {}
    """
    tables = {}
    ordered = sorted(records, key=lambda record: record.key)
    for name, group in itertools.groupby(ordered, key=lambda r: r.experiment):
        runs = list(group)
        columns = COLUMNS[runs[0].task]
        headings = (column.heading for column in columns)
        rows = [("runs", "seeds", *headings, "runtime (s)", "feasible")]
        for kind, same in itertools.groupby(runs, key=lambda r: r.key[1:4]):
            preset, method, projector = kind
            label = f"{preset}, {method},\n{projector}"
            rows.append((label, *_cells(list(same), columns)))
        stand_in = any(run.data.stand_in for run in runs)
        tables[f"{name} (stand-in data)" if stand_in else name] = rows
    return tables


def _cells(group: list[Record], columns: Sequence[Column]) -> list[str]:
    cut = [r.extrapolated_from for r in group if r.extrapolated_from is not None]
    aborted = [r for r in group if not r.complete and r.extrapolated_from is None]
    feasible = f"{sum(r.feasible for r in group)} of {len(group)}"
    if aborted:  # a projection failed on the way: there is no result to average
        group = [r for r in group if r not in aborted]
        feasible += f"\n({len(aborted)} aborted)"
        if not group:
            return [str(len(aborted)), *("-" for _ in columns), "-", feasible]
    cells = [str(len(group))]
    for column in columns:
        values = [column.scale * r.metrics["test"][column.metric] for r in group]
        cells.append("-" if cut else spread(values).text(column.digits))
    runtime = spread([r.runtime for r in group]).text(SECONDS_DIGITS)
    cells.append(f"{runtime}\n(from {min(cut)} updates)" if cut else runtime)
    cells.append(feasible)
    return cells
