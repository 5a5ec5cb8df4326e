"""`oneproj-paper report`: records as one page beside the paper's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneproj_paper.cli.exits import console, exits
from oneproj_paper.cli.tables import show


def report(
    folder: Annotated[
        Path,
        typer.Argument(help="Of records of `oneproj-paper reproduce`."),
    ] = Path("runs"),
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path(
        "report.html"
    ),
) -> None:
    """Show the runs of a folder beside the paper's tables and figures.

    Writes one self-contained HTML page and, beside it, every figure as SVG, PNG and PDF
    and every table as CSV and LaTeX. Nothing is run: the page is made of the records.
    """
    terminal = console()
    with exits(stopped="Stopped. The same command starts again."):
        from oneproj_paper.report.summary import summary
        from oneproj_paper.report.write import write_report

        written = write_report(folder, out)
    for each in written.damaged:
        typer.echo(f"Left out: {each.reason}", err=True)
    show(terminal, summary(written.groups))
    typer.echo(f"Figures and tables: {written.files}")
    typer.echo(f"Page: {written.page}")
