"""`oneproj-paper calibrate`: thresholds whose class errors come up to a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oneproj_paper.cli.exits import console, exits
from oneproj_paper.cli.tables import show

if TYPE_CHECKING:
    from oneproj_paper.experiments.calibration_file import Calibration
    from oneproj_paper.experiments.calibration_search import Trial


def calibrate(
    experiment: Annotated[
        str,
        typer.Argument(
            help="abstention-gaussian, abstention-climsim, abstention-nasa or "
            "abstention-credit."
        ),
    ],
    *,
    method: Annotated[
        Literal["one-projection", "projected-sgd"],
        typer.Option(help="Which method trains."),
    ] = "one-projection",
    preset: Annotated[
        Literal["paper", "oneproj"],
        typer.Option(help="With which settings it does."),
    ] = "oneproj",
    targets: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--target",
            metavar="ERROR ERROR",
            help="Of class 0 and class 1. Default: those of the paper.",
        ),
    ] = None,
    match: Annotated[
        Literal["one-projection", "projected-sgd"] | None,
        typer.Option(
            help="Aim at the validation errors that the paper's own settings reach "
            "with this method on the same samples.",
        ),
    ] = None,
    start: Annotated[
        tuple[float, float] | None,
        typer.Option(help="The first thresholds. Default: the targets, doubled."),
    ] = None,
    updates: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Of a training. Give it several times to keep the number with the "
            "least ambiguity. Default: 500.",
        ),
    ] = None,
    radii: Annotated[
        list[float] | None,
        typer.Option(
            "--radius",
            help="Of the safeguard ball; several are compared, with each number of "
            "updates. Default: the experiment's own.",
        ),
    ] = None,
    batch_sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--batch-size",
            min=1,
            help="Examples per minibatch; several are compared as well. Default: as "
            "`oneproj.solve` has it.",
        ),
    ] = None,
    strengths: Annotated[
        list[float] | None,
        typer.Option(
            "--strength",
            help="Of a sharp hinge on the larger residual, for One Projection; several "
            "are compared as well. Default: rounded hinges that find their own.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every trial.")] = 10,
    rounds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Trials, at most, for each combination of updates, radius, batch "
            "size and strength.",
        ),
    ] = 14,
    out: Annotated[
        Path, typer.Option(help="The result, as JSON; a file may hold several.")
    ] = Path("calibrated.json"),
) -> None:
    """Choose thresholds on validation data, so that class errors meet their targets.

    Training and validation parts only: test data is not looked at. The seeds are not
    those of `reproduce`. A trial trains once per seed, so ten trials of ten seeds take
    a few minutes; Projected SGD takes up to a minute a run.
    """
    terminal = console()
    numbers, balls = tuple(updates or ()), tuple(radii or ())
    sizes, pushes = tuple(batch_sizes or ()), tuple(strengths or ())
    stopped = "Stopped. Nothing was written."
    searches = math.prod(len(each) or 1 for each in (numbers, balls, sizes, pushes))
    trials = rounds * searches + (match is not None)
    with exits(stopped=stopped):
        from oneproj_paper.experiments.calibration_file import (
            check_place,
            write_calibration,
        )
        from oneproj_paper.experiments.calibration_run import run_calibration

        check_place(out)
        with _progress(seeds * trials) as report:
            found = run_calibration(
                experiment,
                preset=preset,
                method=method,
                targets=targets,
                match=match,
                start=start,
                updates=numbers,
                radii=balls,
                batch_sizes=sizes,
                strengths=pushes,
                seeds=seeds,
                rounds=rounds,
                report=report,
            )
        show(terminal, _table(found))
        if found.note:
            terminal.print(found.note, style="bold", markup=False, highlight=False)
        write_calibration(out, found)
    typer.echo(f"Written to {out}")


def _table(found: Calibration) -> Table:
    first, second = (f"{target:.1%}" for target in found.targets)
    chosen = "" if found.radius is None else f", radius {found.radius:g}"
    chosen += "".join(f", {name} {value}" for name, value in found.options.items())
    title = (
        f"{found.experiment}, {found.method}, preset {found.preset}, {found.updates} "
        f"updates{chosen}: mean validation errors over {len(found.seeds)} seeds; "
        f"targets: {first} and {second}, {found.aim}"
    )
    table = Table(title=title)
    names = ("threshold 0", "threshold 1", "class 0 error", "class 1 error")
    for name in ("trial", *names, "ambiguity", "taken"):
        table.add_column(name, justify="right")
    for number, trial in enumerate(found.trials, 1):
        taken = "yes" if trial.thresholds == found.thresholds else ""
        shares = (f"{share:.2%}" for share in (*trial.errors, trial.ambiguity))
        caps = (f"{threshold:.4f}" for threshold in trial.thresholds)
        table.add_row(str(number), *caps, *shares, taken)
    return table


@contextmanager
def _progress(most: int) -> Iterator[Callable[[Trial | None], None]]:
    """Count runs on a terminal, with what the last trial gave; nothing elsewhere."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as bars:
        task = bars.add_task("the first trial", total=most)

        def report(trial: Trial | None) -> None:
            if trial is None:
                bars.advance(task)
                return
            first, second = (f"{error:.1%}" for error in trial.errors)
            bars.update(task, description=f"errors {first}, {second} in the last trial")

        yield report
