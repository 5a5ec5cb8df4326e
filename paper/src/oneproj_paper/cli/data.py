"""`oneproj-paper data`: what the experiments need, where it is, and how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneproj.errors import OneprojError
from oneproj.files import in_words
from oneproj_paper.cli.exits import FAILED, console, exits, notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oneproj_paper.data import Entry

Refresh = Annotated[
    bool, typer.Option("--refresh", help="Do it again where it was done before.")
]
STOPPED = "Stopped. Nothing half-done was kept in place; the same command continues."

data = typer.Typer(help="Find, prepare and verify the data.", no_args_is_help=True)
prepare = typer.Typer(
    help="Download a data set into the user's cache. ONEPROJ_OFFLINE=1 forbids it.",
    no_args_is_help=True,
    subcommand_metavar="credit|nasa_power|climsim|all",
)
data.add_typer(prepare, name="prepare")


@data.callback()
def data_main() -> None:
    """Find, prepare and verify the data of the paper's experiments.

    Files are looked for in the folder that ONEPROJ_DATA names, then in the user's
    cache.
    """


@prepare.callback()
def prepare_main() -> None:
    """Download a data set into the user's cache. ONEPROJ_OFFLINE=1 forbids it."""


@data.command("list")
def list_data() -> None:
    """Show every data set, who needs it, and whether it is here."""
    from oneproj_paper.data import catalogue
    from oneproj_paper.data.find import folders

    terminal = console()
    with exits(stopped="Stopped."):
        entries, places = catalogue(), folders()
    # No table: paths are long, and a path that is broken up cannot be copied.
    for entry in entries:
        title = f"{entry.name}: {entry.status.value}"
        terminal.print(title, style="bold", highlight=False)
        for label, text in _facts(entry):
            line = f"  {label:<10} {text}"
            terminal.print(line, markup=False, highlight=False, soft_wrap=True)
        terminal.print()
    terminal.print(
        "transfer-gaussian and abstention-gaussian need no file: their seed makes it.\n"
        "`oneproj-paper data verify` looks into the files that are here.",
        highlight=False,
    )
    for place in places:
        line = f"Looked in: {place}"
        terminal.print(line, markup=False, highlight=False, soft_wrap=True)


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "what", entry.what
    yield "needed by", ", ".join(entry.experiments)
    yield "source", entry.source
    yield "download", entry.download
    if entry.paths:
        yield "size", f"{entry.size / 1e6:.1f} MB"
        yield from (("where", str(path)) for path in entry.paths)
    else:
        yield "get it", f"oneproj-paper data prepare {entry.name}"


@data.command("verify")
def verify_data(
    name: Annotated[str | None, typer.Argument(help="Default: all.")] = None,
) -> None:
    """Check the files that are here: checksums, rows, classes.

    Exit code 1 if one is damaged, or if nothing of the named data set is here.
    """
    from oneproj_paper.data import verify
    from oneproj_paper.data.find import folders

    terminal = console()
    with exits(stopped="Stopped."):
        findings = verify(name)
    for found in findings:
        text = f"ok       {found.path}" if found.ok else f"DAMAGED  {found.problem}"
        terminal.print(text, markup=False, highlight=False, soft_wrap=True)
    if not findings:
        places = " and ".join(map(str, folders()))
        text = f"No file to check in {places}. Try: oneproj-paper data prepare "
        text += name or "credit"
        terminal.print(text, markup=False, highlight=False, soft_wrap=True)
    if not all(found.ok for found in findings) or (name and not findings):
        raise typer.Exit(FAILED)


@prepare.command("credit")
def credit(
    *,
    file: Annotated[
        Path | None, typer.Option(help="Your own cs-training.csv from Kaggle.")
    ] = None,
    refresh: Refresh = False,
) -> None:
    """Give Me Some Credit, from OpenML: about 10 MB."""
    from oneproj_paper.data import prepare_credit

    _run(lambda: prepare_credit(file=file, refresh=refresh))


@prepare.command("nasa_power")
def nasa_power(
    *,
    place: Annotated[
        list[str] | None,
        typer.Option(help="LATITUDE,LONGITUDE in degrees; may be repeated."),
    ] = None,
    first_year: Annotated[int, typer.Option(help="The first year.")] = 2009,
    last_year: Annotated[int, typer.Option(help="The last year.")] = 2023,
    rain: Annotated[float, typer.Option(help="Much rain: mm a day.")] = 10.0,
    refresh: Refresh = False,
) -> None:
    """Daily weather from NASA POWER: about 10 MB, a stand-in for the paper's table.

    The paper does not say where, when and how much. The defaults are what its table
    suggests: a grid of 0.5 degrees around 40 N, 100 W.
    """
    from oneproj_paper.data import prepare_nasa_power
    from oneproj_paper.data.power_source import PLACES

    places = [_place(text) for text in place] if place else PLACES
    years = (first_year, last_year)
    _run(
        lambda: prepare_nasa_power(
            places=places, years=years, rain=rain, refresh=refresh
        )
    )


@prepare.command("climsim")
def climsim(
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(help="train (10.2 GB), val (1.5 GB); default: both."),
    ] = None,
    first_month: Annotated[
        str | None, typer.Option(help="Take netCDF files, from YYYY-MM on.")
    ] = None,
    last_month: Annotated[
        str | None, typer.Option(help="Up to this month; default: the first.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of netCDF: the distance of two steps; a step has 3 MB. [7]"
        ),
    ] = None,
    refresh: Refresh = False,
) -> None:
    """Eight locations of ClimSim, from Hugging Face: 11.6 GB, of which 0.2 GB stay.

    The disk needs room for 10.2 GB meanwhile. HF_ENDPOINT may name a mirror,
    by https; ONEPROJ_ALLOW_HTTP=1 allows http as well.
    """
    from oneproj_paper.data import prepare_climsim
    from oneproj_paper.data.climsim_files import STRIDE
    from oneproj_paper.data.climsim_hub import ARRAYS

    if first_month is None and (last_month or every):
        message = "--last-month and --every need --first-month."
        raise typer.BadParameter(message)
    if first_month is not None and part:
        message = "--part is of the arrays: leave it out with --first-month."
        raise typer.BadParameter(message)
    months = (first_month, last_month or first_month) if first_month else None
    _run(
        lambda: prepare_climsim(
            parts=part or tuple(ARRAYS),
            months=months,
            every=every or STRIDE,
            refresh=refresh,
        )
    )


@prepare.command("all")
def everything() -> None:
    """All three with their defaults: 11.6 GB, most of it ClimSim."""
    from oneproj_paper.data import prepare_climsim, prepare_credit, prepare_nasa_power

    for action in (prepare_credit, prepare_nasa_power, prepare_climsim):
        _run(action)


def _place(text: str) -> tuple[float, float]:
    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError as error:
        message = f"{text!r} is not LATITUDE,LONGITUDE, as in 40.0,-100.5"
        raise typer.BadParameter(message, param_hint="--place") from error
    return latitude, longitude


def _run(action: Callable[[], Path]) -> None:
    """Prepare, and say where the result is or what went wrong."""
    from oneproj_paper.data.find import cache_folder

    terminal = console()
    with exits(stopped=STOPPED), notices("oneproj_paper.data"):
        try:
            path = action()
        except OSError as error:
            if isinstance(error, OneprojError):
                raise
            message = (
                f"{in_words(error)}. The cache, {cache_folder()}, has to be a folder "
                "that you can write to, with enough room. ONEPROJ_CACHE moves it."
            )
            raise OneprojError(message) from error
    terminal.print(f"Ready: {path}", markup=False, highlight=False, soft_wrap=True)
