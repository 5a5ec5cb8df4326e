"""The command line: parses, delegates, and turns failures into exit codes."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from oneproj.cli.bench import bench
from oneproj.cli.calibrate import calibrate
from oneproj.cli.data import data
from oneproj.cli.report import report
from oneproj.cli.reproduce import reproduce
from oneproj.cli.theory import theory

app = typer.Typer(
    help="Train under hard constraints with one projection.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if not asked:
        return
    try:
        version = importlib.metadata.version("oneproj")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed: the version is not known)"
    typer.echo(f"oneproj {version}")
    raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Train under hard constraints with one projection."""
    del version  # its callback has ended the program


app.command()(theory)
app.command()(reproduce)
app.command()(report)
app.command()(calibrate)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")
