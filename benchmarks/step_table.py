"""A record of ``bench step`` as a table; computes nothing but units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.cells import spread, verdict

MILLISECONDS = 1e3


def step_table(record: Mapping[str, Any]) -> Table:
    """One line per case: the ratio with its quartiles, the bar, the copies.

    Example:
        >>> from benchmarks.step import step_record
        >>> step_table(step_record([1000], repeats=2)).row_count
        8
    """
    settings, around = record["settings"], record["surroundings"]
    table = Table(
        title=f"OneProjection.step() against {settings['reference']}",
        caption=(
            f"float32, {around['threads']} thread(s) on {around['cpu_count']} cores, "
            f"load {around['load']} at the start, torch {around['torch']}. "
            f"{settings['repeats']} alternating repeats of {settings['inner_steps']} "
            "steps; median and, in brackets, quartiles. Only the ratios are claims."
        ),
    )
    for heading in ("parameters", "tensors", "select", "base momentum"):
        table.add_column(heading, justify="right")
    for heading in ("step ms", "reference ms", "ratio", "bar", "copies"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in record["rows"]:
        table.add_row(*_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> list[Text]:
    allowed = f"{row['copies']:.2f} of {row['copies_allowed']}"
    return [
        Text(f"{row['size']:,}"),
        Text(f"{row['tensors']}"),
        Text(row["select"]),
        Text(f"{row['momentum']:g}"),
        Text(f"{MILLISECONDS * row['step']['median']:.3g}"),
        Text(f"{MILLISECONDS * row['reference']['median']:.3g}"),
        spread(row["ratio"]),
        verdict(f"{row['bar']:.2f}", met=row["met"]),
        verdict(allowed, met=row["copies_met"]),
    ]
