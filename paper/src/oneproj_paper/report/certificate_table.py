"""What the certificates say: feasible runs, residuals, multipliers, projections."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.groups import Group, commands_of
from oneproj_paper.report.result_tables import LABELS, row_labels
from oneproj_paper.report.tables import (
    NONE,
    Cell,
    Line,
    Mark,
    Table,
    flags_of,
    text_column,
)

HEADINGS = (
    "Feasible runs",
    "Worst residual",
    "Before the projection",
    "KKT residual",
    "KKT of the projection",
    "Projections per run",
    "Gradients, last projection",
    "Distance moved",
)
KKT = "KKT"
"""How the name of that measure begins in a certificate."""


def certificate_table(groups: Sequence[Group]) -> Table:
    """One row per group; residuals are the largest over runs and constraints.

    Example:
        >>> certificate_table([]).key
        'certificates'
    """
    return Table(
        key="certificates",
        title="Certificates",
        caption=(
            "Feasible means that every constraint is <= 0 on the full training data, "
            "not nearly. Residuals are the largest over runs and constraints, after "
            "and before the terminal projection. KKT residuals, of the answer in the "
            "whole problem and of the last projection, are the largest over runs. The "
            "last projection's full gradients, and the distance that it moved the "
            "parameters, are means."
        ),
        labels=LABELS,
        columns=tuple(text_column(name, compared=False) for name in HEADINGS),
        lines=tuple(
            Line(row_labels(group), _cells(group.records), flags=flags_of(group))
            for group in groups
        ),
        commands=commands_of(groups),
    )


def worst_residual(records: Sequence[Record]) -> float:
    """The largest residual of any constraint in any run: feasible at 0 or below.

    Example:
        >>> worst_residual([])
        -inf
    """
    return _worst([v for record in records for v in record.residuals.values()])


def _worst(values: Sequence[float]) -> float:
    # NaN compares with nothing: max() would show or hide it by its place.
    if any(math.isnan(value) for value in values):
        return math.nan
    return max(values, default=-math.inf)


def _cells(records: Sequence[Record]) -> tuple[Cell, ...]:
    before = [v for record in records for v in record.residuals_before.values()]
    kkt = [
        measure.value
        for record in records
        for measure in record.certificate.measures
        if measure.name.startswith(KKT)
    ]
    feasible = sum(record.feasible for record in records)
    n = len(records)
    texts = (
        f"{feasible} of {n}",
        f"{worst_residual(records):.1e}",
        f"{_worst(before):.1e}" if before else NONE,
        f"{_worst(kkt):.1e}" if kkt else NONE,
        f"{_worst([r.projection.kkt_residual for r in records]):.1e}",
        _mean(record.counts.projections for record in records),
        _mean(record.projection.evaluations for record in records),
        f"{sum(record.projection.distance for record in records) / n:.2e}",
    )
    mark: Mark = "within" if feasible == n else "outside"
    first = Cell(texts[0], mark=mark, fields=(texts[0],))
    return (first, *(Cell(text, fields=(text,)) for text in texts[1:]))


def _mean(values: Iterable[int]) -> str:
    listed = list(values)
    return f"{sum(listed) / len(listed):,.4g}"
