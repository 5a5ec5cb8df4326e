"""`oneproj bench`: what things cost, and how good they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from oneproj.cli.exits import console, exits
from oneproj.files import check_place, write_text

bench = typer.Typer(help="Measure what things cost.", no_args_is_help=True)


@bench.callback()
def bench_main() -> None:
    """Measure what things cost."""


@contextmanager
def _exits(out: Path | None) -> Iterator[None]:
    """Fail in words, and before the work where the record could not be written."""
    with exits(stopped="Stopped. Nothing was written."):
        if out is not None:
            check_place(out)
        yield


def _write(record: dict[str, Any], out: Path | None) -> None:
    """Write the record, which is shown already: a full disk does not lose it."""
    if out is not None:
        write_text(out, json.dumps(record, indent=2) + "\n")


@bench.command("step")
def bench_step(
    *,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1000, help="Parameters; may be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Of the point timed at.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Time one inner update against SGD with momentum and three passes.

    The bar is a ratio of 1.10 at 10^6 and 10^7 parameters (the default sizes). A bar
    that is missed is shown and is no failure: it may be the machine's doing.
    """
    terminal = console()
    with _exits(out):
        from oneproj.bench.step import SIZES, step_record
        from oneproj.bench.step_table import step_table

        record = step_record(sizes or SIZES, repeats=repeats, seed=seed)
        terminal.print(step_table(record))
        _write(record, out)


@bench.command("overhead")
def bench_overhead(
    *,
    updates: Annotated[int, typer.Option(min=1, help="Of every run.")] = 200,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of data and start.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Time a transformer of 10^7 parameters with a constraint against a bare loop.

    The bars are ratios of 1.15 with minibatches and 1.7 with anchors. The defaults take
    about half an hour on a free core. A bar that is missed is shown and is no failure.
    """
    terminal = console()
    with _exits(out):
        from oneproj.bench.overhead import Shape, overhead_record
        from oneproj.bench.overhead_table import overhead_table

        shape = Shape(batch_size=batch_size)
        record = overhead_record(shape, updates=updates, repeats=repeats, seed=seed)
        terminal.print(overhead_table(record))
        _write(record, out)


@bench.command("projection")
def bench_projection(
    *,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=18, help="Parameters; may be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of data and starts.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Count gradients and time of one projection, by this library and by others.

    18 parameters are two linear scores, other sizes are networks. The default sizes, up
    to 10^7, take about a quarter of an hour, most of it the augmented Lagrangian. A bar
    that is missed is shown and is no failure.
    """
    terminal = console()
    with _exits(out):
        from oneproj.bench.projection import SIZES, projection_record
        from oneproj.bench.projection_table import projection_tables

        record = projection_record(sizes or SIZES, repeats=repeats, seed=seed)
        for table in projection_tables(record):
            terminal.print(table)
        _write(record, out)


@bench.command("train")
def bench_train(
    *,
    problems: Annotated[
        list[str] | None,
        typer.Option("--problem", help="Of the paper's six; may be repeated."),
    ] = None,
    contestants: Annotated[
        list[str] | None,
        typer.Option("--contestant", help="By name; may be repeated. Default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of data, start and sampling.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Updates of each run.")] = 500,
    extrapolate: Annotated[
        bool,
        typer.Option("--extrapolate", help="Time slower projectors on networks."),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The record, as JSON; continued if it exists.")
    ] = Path("bench-train.json"),
) -> None:
    """Train on the paper's six problems with every method, side by side.

    Problems whose data is missing are skipped. Projected SGD takes minutes a seed on
    networks, so all of it takes hours; every run is saved when it is done, and the same
    command continues. Beside the record: the anytime plot, as SVG and PNG. A bar that
    is missed is shown and is no failure.
    """
    terminal = console(width=200)
    stopped = f"Stopped. The same command continues from {out}."
    with exits(stopped=stopped):
        from oneproj.bench.train import train_record
        from oneproj.bench.train_figure import draw_anytime
        from oneproj.bench.train_table import train_tables
        from oneproj.tasks import PAPER

        check_place(out)
        record = train_record(
            problems or list(PAPER),
            contestants=contestants,
            seeds=seeds,
            steps=steps,
            extrapolate=extrapolate,
            out=out,
        )
        for table in train_tables(record):
            terminal.print(table)
        files = ", ".join(str(file) for file in (out, *draw_anytime(record, out)))
        typer.echo(f"Record and figure: {files}")


@bench.command("robust")
def bench_robust(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Updates of every run.")] = 500,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Try the defaults on one problem in many disguises; prints a Markdown table.

    The bar is an objective at most 5 percent above that of the best method. A bar that
    is missed is shown and is no failure.
    """
    with _exits(out):
        from oneproj.bench.robust import robust_lines, robust_record

        record = robust_record(steps=steps, seeds=seeds)
        robust_lines(record, typer.echo)
        _write(record, out)
