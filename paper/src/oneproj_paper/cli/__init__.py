"""The command line: parses, delegates, and turns failures into exit codes."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from oneproj_paper.cli.calibrate import calibrate
from oneproj_paper.cli.data import data
from oneproj_paper.cli.report import report
from oneproj_paper.cli.reproduce import reproduce
from oneproj_paper.cli.theory import theory

app = typer.Typer(
    help="Make the experiments and theorems of the paper again.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if not asked:
        return
    try:
        version = importlib.metadata.version("oneproj-paper")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed: the version is not known)"
    typer.echo(f"oneproj-paper {version}")
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
    """Make the experiments and theorems of the paper again."""
    del version  # its callback has ended the program


app.command()(theory)
app.command()(reproduce)
app.command()(report)
app.command()(calibrate)
app.add_typer(data, name="data")
