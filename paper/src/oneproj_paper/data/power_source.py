"""NASA POWER's daily point service, and the table made of its answers.

The paper's table is a file of its own; where, when and above which rain it was made is
not stated. The defaults here are what that file itself suggests: nine points of which
some share a solar cell in just the way of a grid of 0.5 degrees around 40 N, 100 W
(with the pressure of that height, and the warmest, driest summer in the year that
would be 2012), 15 years with three leap days, and about the share of days with 10 mm
of rain, which meteorologists call heavy. It stays a guess, and its table a stand-in.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.progress import progress_bar
from oneproj.vectors.arithmetic import Array, Mask
from oneproj_paper.data.cached_files import (
    discard,
    is_cached,
    locked,
    own_copy,
    read_recipe,
    replacing,
    warn_if_hidden,
    write_recipe,
)
from oneproj_paper.data.fetch import fetch, other_ways
from oneproj_paper.data.find import VARIABLE, cache_folder
from oneproj_paper.data.power_tables import (
    ARTIFACT,
    COLUMNS,
    LABEL,
    MISSING,
    NAME,
    PREPARED,
    read_artifact,
    read_prepared,
)
from oneproj_paper.errors import InvalidDataError

LOG = logging.getLogger(__name__)
RAIN = "PRECTOTCORR"
"""Precipitation of a day, in mm."""
POWER = "https://power.larc.nasa.gov"
NORTH, EAST = 90.0, 180.0
FIRST_YEAR = 1981
"""The first year of the service."""


class Place(NamedTuple):
    """A point of the earth, in degrees north and east."""

    latitude: float
    longitude: float


PLACES = tuple(
    Place(40.0 + a, -100.0 + b) for a in (0, -0.5, 0.5) for b in (0, 0.5, -0.5)
)
YEARS = (2009, 2023)
HEAVY = 10.0
OWN = {ARTIFACT: read_artifact, PREPARED: read_prepared}
"""What loaders take from the user's own folder before the table of the cache."""
ADVICE = (
    f"Other ways: set {VARIABLE} to a folder that holds the paper's table as "
    f"{ARTIFACT}, or as {PREPARED} one that this command made on another machine."
)


def prepare_nasa_power(
    *,
    places: Sequence[tuple[float, float]] = PLACES,
    years: tuple[int, int] = YEARS,
    rain: float = HEAVY,
    refresh: bool = False,
    progress: bool | None = None,
) -> Path:
    """Make a table of daily weather from NASA POWER, with a label for much rain.

    It has the columns of the paper's file and takes its place, as a stand-in, where
    that file is missing. About 1 MB per point; it never starts by itself, because
    where and when are a choice. Points that have arrived are kept until the table is
    written, so that another call, after an interruption or with another rain, fetches
    only what is missing. Days with a missing value are left out. With the default
    choices a table under ONEPROJ_DATA is verified and nothing is made.

    Args:
        places: Latitude and longitude of each point, in degrees.
        years: The first and the last year, both whole.
        rain: Label 1 is for days with at least this rain, in mm.
        refresh: Do it again where it was done before with the same choices.
        progress: None shows a bar on a terminal.

    Raises:
        InvalidProblemError: A place, the years or the rain do not make sense.
        DataNotFoundError: The service cannot be reached.
        InvalidDataError: An answer is not what the service documents.

    Example:
        >>> prepare_nasa_power(years=(2023, 2009))
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: years=(2023, 2009) ...
    """
    points = [Place(*place) for place in places]
    _check(points, years, rain)
    chosen = (*points, years, rain) != (*PLACES, YEARS, HEAVY)
    found = None if refresh or chosen else own_copy(OWN)
    if found is not None:
        return found
    recipe = {"places": [[*p] for p in points], "years": [*years], "rain": rain}
    path = cache_folder() / PREPARED
    with locked(NAME), other_ways(ADVICE):
        same = read_recipe(path) == recipe and not refresh
        if same and is_cached(path, read_prepared):
            return path
        answers = _fetch_points(points, years, progress=progress)
        table = np.concatenate(list(answers.values()))
        label = table[:, -1] >= rain
        _refuse_one_class(label, rain)
        with replacing(path) as partial:
            _write(partial, table[:, :-1], label)
        write_recipe(path, recipe)
        for answer in answers:
            discard(answer)
    warn_if_hidden(OWN)
    return path


def read_point(path: Path) -> Array:
    """The days of one answer: six variables and the rain, without missing values.

    Raises:
        InvalidDataError: It is not an answer of the daily point service.
    """
    names = (*COLUMNS, RAIN)
    try:
        series: dict[str, dict[str, Any]]
        series = json.loads(path.read_text("utf-8"))["properties"]["parameter"]
        days = sorted(series[names[0]])
        table = np.array(
            [[series[name][day] for name in names] for day in days], dtype=np.float64
        ).reshape(-1, len(names))
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"{path} should hold {', '.join(names)} under properties.parameter, one "
            f"value a day, but: {error!r}. The service may have changed."
        )
        raise InvalidDataError(message) from error
    complete: Mask = ((table != MISSING) & np.isfinite(table)).all(axis=1)
    if not complete.any():
        lacking = [n for n, x in zip(names, table.T, strict=True) if _is_void(x)]
        message = (
            f"{path} has no day with all of {', '.join(names)}; missing on all "
            f"{len(table):,} days: {', '.join(lacking) or 'none'}. The service may not "
            "have that place or those years: try others."
        )
        raise InvalidDataError(message)
    return table[complete]


def _is_void(series: Array) -> bool:
    return bool(((series == MISSING) | ~np.isfinite(series)).all())


def _fetch_points(
    places: Sequence[Place], years: tuple[int, int], *, progress: bool | None
) -> dict[Path, Array]:
    """The days of every place, by file; files that are there are not fetched again."""
    folder = cache_folder() / NAME / "points"
    tables: dict[Path, Array] = {}
    LOG.info("Trying %s for %d points, about 1 MB each.", POWER, len(places))
    with progress_bar("NASA POWER", len(places), enabled=progress) as advance_to:
        for done, place in enumerate(places, start=1):
            path = folder / f"{'_'.join(map(str, (*place, *years)))}.json"
            if not path.is_file():
                fetch(_address(place, years), path, progress=False)
            try:
                tables[path] = read_point(path)
            except InvalidDataError:
                discard(path)  # or it would be in the way of the next attempt
                raise
            advance_to(done)
    return tables


def _write(path: Path, weather: Array, label: Mask) -> None:
    header = ",".join((*COLUMNS, LABEL))
    form = [*["%.10g"] * len(COLUMNS), "%d"]
    rows = np.column_stack([weather, label])
    np.savetxt(path, rows, form, ",", header=header, comments="")


def _check(places: Sequence[Place], years: tuple[int, int], rain: float) -> None:
    wrong = [
        place
        for place in places
        if not (abs(place.latitude) <= NORTH and abs(place.longitude) <= EAST)
    ]
    if not places or wrong or len(set(places)) < len(places):
        message = (
            f"places={[tuple(p) for p in wrong or places]} should be latitudes and "
            "longitudes in degrees, at least one, and each of them once."
        )
    elif not FIRST_YEAR <= years[0] <= years[1]:
        message = (
            f"years={years} should be a first and a last year, from {FIRST_YEAR} on: "
            "the service has nothing earlier."
        )
    elif not (math.isfinite(rain) and rain > 0):
        message = f"rain={rain} should be positive: the mm a day at which much begins."
    else:
        return
    raise InvalidProblemError(message)


def _refuse_one_class(label: Mask, rain: float) -> None:
    if label.any() and not label.all():
        return
    message = (
        f"{int(label.sum()):,} of {len(label):,} days have at least {rain} mm of rain, "
        "but both classes are needed. Try another amount of rain: what was fetched "
        "is kept. Or try other places."
    )
    raise InvalidProblemError(message)


def _address(place: Place, years: tuple[int, int]) -> str:
    query = {
        "parameters": ",".join((*COLUMNS, RAIN)),
        "community": "AG",
        "latitude": place.latitude,
        "longitude": place.longitude,
        "start": f"{years[0]}0101",
        "end": f"{years[1]}1231",
        "format": "JSON",
    }
    return f"{POWER}/api/temporal/daily/point?{urlencode(query)}"
