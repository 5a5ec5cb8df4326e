"""`oneproj-paper theory`: the theorems, executed to the letter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from oneproj.files import check_place
from oneproj_paper.cli.exits import FAILED, console, exits

if TYPE_CHECKING:
    from oneproj_paper.laboratory.plans import Plan


def theory(
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="T and K divided by 16: outside the theorem."),
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Independent runs per row.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of every random number.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("theory"),
    jobs: Annotated[int, typer.Option(min=1, help="Threads.")] = os.cpu_count() or 1,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Continue from checkpoints, or not."),
    ] = True,
) -> None:
    """Execute the three theorems' schedules and count how often they keep their word.

    To the letter this is 10^10 inner steps per trial and row: an hour of computation,
    so half an hour on two cores, less where they have nothing else to do. Exit code 1
    if a row fails.
    """
    terminal = console()
    stopped = f"Stopped. The same command continues from {out}/checkpoints."
    with exits(stopped=stopped):
        from oneproj_paper.laboratory.plans import make_plans
        from oneproj_paper.laboratory.report import check_theorems
        from oneproj_paper.laboratory.tables import COLUMNS, table_cells, table_title

        plans = make_plans(trials=trials, seed=seed, quick=quick)
        check_place(out / "theory.json")
        with _progress(plans) as report:
            records = check_theorems(
                plans, out=out, jobs=jobs, fresh=not resume, report=report
            )
    table = Table(title=table_title(records))
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for record in records:
        table.add_row(*table_cells(record))
    terminal.print(table)
    typer.echo(f"Records, table and figure: {out}")
    if not all(record.passed for record in records):
        raise typer.Exit(FAILED)


@contextmanager
def _progress(plans: list[Plan]) -> Iterator[Callable[[str, int], None]]:
    """Show one bar per row on a terminal, nothing elsewhere."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as bars:
        tasks = {
            plan.problem.key: bars.add_task(
                plan.problem.key, total=plan.schedule.outer_steps * plan.trials
            )
            for plan in plans
        }
        yield lambda key, steps: bars.advance(tasks[key], steps)
