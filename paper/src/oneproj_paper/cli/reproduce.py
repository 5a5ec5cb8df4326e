"""`oneproj-paper reproduce`: the paper's experiments, every run a record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from oneproj_paper.cli.exits import console, exits
from oneproj_paper.cli.tables import show


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="transfer-gaussian, transfer-climsim, abstention-gaussian, "
            "abstention-climsim, abstention-nasa, abstention-credit. Default: all "
            "whose data is there.",
        ),
    ] = None,
    *,
    seeds: Annotated[
        int, typer.Option(min=1, help="Of data, start and sampling: 0 to N - 1.")
    ] = 10,
    projected_sgd_seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of Projected SGD, the slower method. Default: as many."
        ),
    ] = None,
    preset: Annotated[
        Literal["paper", "oneproj", "both"],
        typer.Option(help="The paper's settings, or this library's defaults."),
    ] = "both",
    method: Annotated[
        Literal["one-projection", "projected-sgd", "both"],
        typer.Option(help="Which method to run."),
    ] = "both",
    projector: Annotated[
        Literal["cuts", "augmented-lagrangian", "dual-bisection"] | None,
        typer.Option(
            help="Of Projected SGD, and of the one projection. Default: the preset's."
        ),
    ] = None,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            help="A file of `oneproj-paper calibrate`, for the preset oneproj. "
            "Default: the library's own."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes, each with one thread.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs"),
    extrapolate_from: Annotated[
        int,
        typer.Option(
            min=0,
            help="With the paper's projector, Projected SGD takes about an hour a seed "
            "on networks that abstain: it is stopped after these updates, on one "
            "seed, and its time extrapolated. 0 makes all updates, on all seeds.",
        ),
    ] = 50,
) -> None:
    """Run the paper's experiments; every run becomes a record.

    What has a record is not run again, so the same command continues after a crash or
    Ctrl-C. Times are comparable where each process has a core to itself.
    """
    terminal = console()
    with exits(stopped=f"Stopped. The same command continues in {out}."):
        from oneproj_paper.experiments.reproduce import reproduce as make
        from oneproj_paper.experiments.summary import summaries

        done = make(
            experiments or None,
            seeds=seeds,
            presets=("paper", "oneproj") if preset == "both" else (preset,),
            methods=("one-projection", "projected-sgd")
            if method == "both"
            else (method,),
            projector=projector,
            thresholds=thresholds,
            jobs=jobs,
            out=out,
            extrapolate_from=extrapolate_from,
            projected_sgd_seeds=projected_sgd_seeds,
            say=typer.echo,
        )
    for name, (heading, *rows) in summaries(done.records).items():
        title = f"{name}, test data: mean and standard deviation"
        show(terminal, _table(title, heading, rows))
    kept = len(done.records) - done.made
    typer.echo(f"Records: {out} ({done.made} new, {kept} kept)")


def _table(title: str, heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title)
    for name in heading:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
