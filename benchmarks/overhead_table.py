"""A record of ``bench overhead`` as a table; computes nothing but units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.cells import spread, verdict

PERCENT = 100


def overhead_table(record: Mapping[str, Any]) -> Table:
    """One line per contestant: seconds, the ratio with its quartiles, the bar.

    Example:
        >>> from benchmarks.overhead import Shape, overhead_record
        >>> shape = Shape(width=8, heads=2, layers=1, length=4, sequences=6)
        >>> overhead_table(overhead_record(shape, updates=10, repeats=2)).row_count
        4
    """
    settings, around = record["settings"], record["surroundings"]
    table = Table(
        title=(
            f"{settings['updates']} updates of a transformer with "
            f"{record['parameters']:,} parameters"
        ),
        caption=(
            f"{settings['batch_size']} sequences of {settings['length']} tokens per "
            f"minibatch, {settings['sequences']} in all. {around['threads']} thread(s) "
            f"on {around['cpu_count']} cores, load {around['load']} at the start, "
            f"torch {around['torch']}. {settings['repeats']} alternating repeats; "
            "median and, in brackets, quartiles. Only the ratios are claims."
        ),
    )
    for heading in ("", "seconds", "to bare SGD", "bar", "projection", "residual"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in record["rows"]:
        table.add_row(*_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> list[Text]:
    seconds = f"{row['seconds']['median']:.3g}"
    cells = [Text(row["name"]), Text(seconds), spread(row["ratio"])]
    if row["bar"] is None:
        return cells
    return [
        *cells,
        verdict(f"{row['bar']:.2f}", met=row["met"]),
        Text(f"{PERCENT * row['project_share']:.0f}%"),
        Text(f"{row['residual']:.1e}"),
    ]
