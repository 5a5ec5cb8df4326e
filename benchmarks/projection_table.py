"""A record of ``bench projection`` as two tables; computes nothing but units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.cells import verdict

MILLISECONDS = 1e3


def projection_tables(record: Mapping[str, Any]) -> list[Table]:
    """One line per rival and problem; then one per bar."""
    settings, around = record["settings"], record["surroundings"]
    table = Table(
        title="One projection: full constraint gradients and time",
        caption=(
            f"{settings['dtype']}, {around['threads']} thread(s) on "
            f"{around['cpu_count']} cores, load {around['load']} at the start, torch "
            f"{around['torch']}; medians of up to {settings['repeats']} alternating "
            "repeats, * timed once, > stopped after "
            f"{settings['limit']:g} s. Only counts and ratios are claims."
        ),
    )
    headings = ("parameters", "start", "rival", "gradients", "ms", "time / cuts")
    for heading in (*headings, "time / its gradients", "distance", "worst residual"):
        table.add_column(heading, justify="right")
    for row in record["rows"]:
        table.add_row(*_cells(row))
    bars = Table(title="Bars for cuts")
    for heading in ("parameters", "start", "what", "measured", "bar"):
        bars.add_column(heading, justify="right")
    for bar in record["bars"]:
        bars.add_row(*_bar_cells(bar))
    return [table, bars]


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [f"{row['size']:,}", row["start"], row["rival"]]
    if row["reason"] is not None:
        return [*cells, "", f"does not run: {row['reason']}", "", "", "", ""]
    answer, gradients, reached, more = row["answer"], "", ["", ""], ""
    if answer is not None:
        more = "> " if answer["stopped"] else ""
        count = answer["gradients"]
        gradients = "none" if count is None else f"{more}{count}"
        reached = [f"{answer['distance']:.6g}", f"{answer['residual']:.1e}"]
    once = "*" if row["runs"] == 1 else ""
    milliseconds = f"{more}{MILLISECONDS * row['seconds']['median']:.3g}{once}"
    ratio = f"{more}{row['ratio']['median']:.3g}"
    overhead = "" if row["overhead"] is None else f"{row['overhead']:.3g}"
    return [*cells, gradients, milliseconds, ratio, overhead, *reached]


def _bar_cells(bar: Mapping[str, Any]) -> list[Text]:
    bound = f"{'>=' if bar['at_least'] else '<='} {bar['bound']:g}"
    return [
        Text(f"{bar['size']:,}"),
        Text(bar["start"]),
        Text(bar["what"]),
        Text(f"{bar['value']:.3g}"),
        verdict(bound, met=bar["met"]),
    ]
