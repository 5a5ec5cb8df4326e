"""The command line: parses, delegates, and turns failures into exit codes."""

from __future__ import annotations

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
)


@app.callback()
def main() -> None:
    """Train under hard constraints with one projection."""


app.command()(theory)
app.command()(reproduce)
app.command()(report)
app.command()(calibrate)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")
