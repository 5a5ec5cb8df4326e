"""A record of ``bench train`` as tables: one per problem, and one of the bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.cells import verdict
from benchmarks.train_bars import (
    Bar,
    Summary,
    judge_bars,
    problems_of,
    summaries,
)

HEADINGS = (
    *("contestant", "feasible", "objective", "residual before", "worst residual"),
    *("seconds", "time / ours", "gradients", "full passes", "projections", "notes"),
)


def train_tables(record: Mapping[str, Any]) -> list[Table]:
    """One table per problem, with a line per contestant; then one line per bar."""
    tables = [_problem_table(record, problem) for problem in problems_of(record)]
    bars = Table(title="Bars for one projection with its defaults")
    for heading in ("problem", "what", "measured", "seeds", "bar"):
        bars.add_column(heading, justify="right")
    for bar in judge_bars(record):
        bars.add_row(*_bar_cells(bar))
    for problem, reason in record["skipped"].items():
        bars.add_row(Text(problem), Text(f"skipped: {reason}"))
    return [*tables, bars]


def _problem_table(record: Mapping[str, Any], problem: str) -> Table:
    conditions, run = record["conditions"], record["runs"][-1]
    around = run["surroundings"]
    table = Table(
        title=f"{problem}: {conditions['steps']} updates, one start per seed",
        caption=(
            f"{conditions['dtype']}, {conditions['threads']} thread(s) on "
            f"{around['cpu_count']} cores, torch {around['torch']}, projector "
            f"{conditions['projector']!r}. Objective on all training data after "
            "projection, mean and standard deviation over feasible runs; worst "
            "residuals of all runs; medians of seconds (training and projection), of "
            "constraint gradients (minibatch or full), of passes over all data of a "
            "constraint, and of the ratio of seconds, seed by seed. Only ratios are "
            "claims."
        ),
    )
    for heading in HEADINGS:
        last = heading == "notes"
        table.add_column(heading, justify="left" if last else "right", no_wrap=not last)
    for summary in summaries(record, problem):
        table.add_row(*_cells(summary))
    return table


def _cells(row: Summary) -> list[Text]:
    objective = "" if row.objective is None else f"{row.objective:.4g}"
    if row.deviation is not None:
        objective += f" +- {row.deviation:.2g}"
    judged = row.residual is not None
    share = f"{row.counted} of {row.made}" if judged else ""
    style = "bold red" if judged and row.counted < row.made else ""
    residual = "" if row.residual is None else f"{row.residual:.1e}"
    numbers = (row.seconds, row.ratio)
    counts = (row.constraint_gradients, row.constraint_passes, row.projections)
    return [
        Text(row.contestant),
        Text(share, style),
        Text(objective),
        Text("" if row.residual_before is None else f"{row.residual_before:.1e}"),
        Text(residual, "bold red" if judged and (row.residual or 0.0) > 0 else ""),
        *(Text("" if x is None else f"{x:.3g}") for x in numbers),
        *(Text("" if x is None else f"{x:.0f}") for x in counts),
        Text("; ".join((row.about, *row.notes))),
    ]


def _bar_cells(bar: Bar) -> list[Text]:
    bound = f"{'>=' if bar.at_least else '<='} {bar.bound:g}"
    return [
        Text(bar.problem),
        Text(bar.what),
        Text(f"{bar.value:.5g}"),
        Text(f"{bar.seeds}"),
        verdict(bound, met=bar.met),
    ]
