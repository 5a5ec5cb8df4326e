"""Pieces of ClimSim from its hub: rows of the eight locations the paper uses.

Two data sets of the hub hold the same simulation. ``LEAP/subsampled_low_res`` has every
seventh step in arrays of gigabytes, ``LEAP/ClimSim_low-res`` every step in a pair of
netCDF files of 3 MB. What the user has under ONEPROJ_DATA is not fetched again.

The arrays are normalised, and what they were normalised with is in the repository of
the data's authors, on its branch ``main``: no commit is known that surely holds all
three files. So it is their content that is pinned: each has to hold 124 values with a
known digest, whoever it comes from, and another value is refused.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.progress import progress_bar
from oneproj_paper.data.cached_files import discard
from oneproj_paper.data.climsim_calendar import (
    DAY,
    STAMP_DAY,
    STEP,
    days_of,
    times_from,
)
from oneproj_paper.data.climsim_files import (
    NORM,
    TARGETS,
    open_array,
    read_norm,
    read_pair,
    read_subsampled,
)
from oneproj_paper.data.climsim_rows import (
    COLUMNS,
    LOCATIONS,
    VARIABLES,
    Rows,
    concatenate,
)
from oneproj_paper.data.fetch import fetch
from oneproj_paper.data.find import cache_folder, locate, own_folder
from oneproj_paper.errors import InvalidDataError

LOG = logging.getLogger(__name__)
HUB = "https://huggingface.co"
HUB_VARIABLE = "HF_ENDPOINT"
"""The environment variable that names a mirror of the hub, as for its own client."""
HTTP_VARIABLE = "ONEPROJ_ALLOW_HTTP"
"""Set to 1 by a user who trusts the way to a mirror that has no https."""
SUBSAMPLED = "datasets/LEAP/subsampled_low_res/resolve/main"
RAW = "datasets/LEAP/ClimSim_low-res/resolve/main/train"
CODE = "https://raw.githubusercontent.com/leap-stc/ClimSim/main"
"""The authors' own repository: the normalisation is there, and not on the hub."""
NORM_FOLDER = "preprocessing/normalizations/inputs"
NORM_DIGESTS = {
    "input_mean.nc": "72cb54561feaac6f27eb79ba392e155dddcdd9c33700efe64830288f63512bfc",
    "input_max.nc": "91c5ad1fc2c90f9629a448562560d42df740ccab3e3f0568cee40630e2e906a0",
    "input_min.nc": "7875887b87c3af1ceb8767127c70263b140757858850e8c5c7fe2828beafcbf6",
}
"""SHA-256 of the values in the order of a row, as little-endian float64."""


class Arrays(NamedTuple):
    """A pair of arrays of the subsampled set."""

    first: int
    """The date of its first step."""
    steps: int


ARRAYS = {"train": Arrays(10_201, 26_280), "val": Arrays(80_201, 3_755)}
"""Seven years and one: together the eight years of the paper."""
LONGEST_MONTH = 31
FIRST_MONTH, LAST_MONTH = "0001-02", "0009-01"
"""The same eight years, as folders of netCDF files."""


def subsampled_rows(name: str, *, progress: bool | None) -> Rows:
    """The rows of one pair of arrays; the pair is deleted when they are read.

    Raises:
        DataNotFoundError: A file could not be fetched.
        InvalidDataError: A file is not what it should be.
    """
    first, steps = ARRAYS[name]
    norm = [_normalisation(file, progress=progress) for file in NORM]
    inputs = _array(f"{name}_input.npy", VARIABLES, steps, progress=progress)
    targets = _array(f"{name}_target.npy", TARGETS, steps, progress=progress)
    rows = read_subsampled(inputs, targets, norm, first=first, locations=LOCATIONS)
    for path in (inputs, targets):
        _discard_from_cache(path)
    return rows


def netcdf_rows(month: str, *, every: int, progress: bool | None) -> Rows:
    """The rows of every ``every``-th step of a month; each pair is deleted when read.

    Steps are counted from the beginning of the simulation, so that months fit together.

    Raises:
        DataNotFoundError: A file could not be fetched.
        InvalidDataError: A file is not what it should be.
    """
    times = month_times(month, every)
    pieces = []
    LOG.info("Trying %s for %d steps of %s, 3 MB each.", _hub(), len(times), month)
    with progress_bar(f"ClimSim {month}", len(times), enabled=progress) as advance_to:
        for done, time in enumerate(times, start=1):
            pair = [_netcdf(kind, time) for kind in ("mli", "mlo")]
            with _forgetting(*pair):
                rows = read_pair(*pair)
            pieces.append(rows.where(np.isin(rows.location, LOCATIONS)))
            for path in pair:
                _discard_from_cache(path)
            advance_to(done)
    return concatenate(pieces)


def month_times(month: str, every: int) -> list[int]:
    """The stamps of every ``every``-th step, of those that fall into a month.

    Example:
        >>> month_times("0001-02", 1008)
        [1020100000, 1021500000]
    """
    date = int(month.replace("-", "")) * 100 + 1
    start = ARRAYS["train"].first
    begin, first = days_of(np.array([start, date])).tolist()
    before, within = (first - begin) * DAY // STEP, LONGEST_MONTH * DAY // STEP
    times = times_from(start, -(-(before + within) // every), every)
    inside = times // STAMP_DAY // 100 == date // 100
    return [int(time) for time in times[inside]]


def _array(file: str, width: int, steps: int, *, progress: bool | None) -> Path:
    """A complete array: the user's own, one that arrived before, or from the hub."""
    name, rows = f"climsim/subsampled/{file}", steps * COLUMNS
    path = locate(name)
    if path is not None:
        with _forgetting(path):
            found = len(open_array(path, width))
        if found == rows:
            return path
        _discard_from_cache(path)
    path = cache_folder() / name
    fetch(f"{_hub()}/{SUBSAMPLED}/{file}", path, progress=progress)
    with _forgetting(path):
        found = len(open_array(path, width))
        if found != rows:
            message = (
                f"The hub's {file} holds {found:,} rows, expected are {rows:,}. It has "
                "changed: this version of oneproj does not know its times."
            )
            raise InvalidDataError(message)
    return path


def _normalisation(file: str, *, progress: bool | None) -> Path:
    """A file of the normalisation, from the user's folder, the cache or its source."""
    name, address = f"climsim/norm/{file}", f"{CODE}/{NORM_FOLDER}/{file}"
    path = locate(name)
    if path is None:
        path = fetch(address, cache_folder() / name, progress=progress)
    with _forgetting(path):
        _check_norm(path, file)
    return path


def _check_norm(path: Path, file: str) -> None:
    """Refuse values that are not those the hub's arrays were normalised with."""
    values = read_norm(path).astype("<f8").tobytes()
    if hashlib.sha256(values).hexdigest() == NORM_DIGESTS[file]:
        return
    message = (
        f"{path} does not hold the values that the hub's arrays were normalised with: "
        "units would come out wrong. The authors' repository may have changed. Put "
        f"{file} of a version before into the folder climsim/norm of ONEPROJ_DATA."
    )
    raise InvalidDataError(message)


def _netcdf(kind: str, time: int) -> Path:
    date, second = divmod(time, STAMP_DAY)
    month = f"{date // 10_000:04}-{date // 100 % 100:02}"
    file = f"E3SM-MMF.{kind}.{month}-{date % 100:02}-{second:05}.nc"
    name = f"climsim/raw/{file}"
    found = locate(name)
    if found is not None:
        return found
    address = f"{_hub()}/{RAW}/{month}/{file}"
    return fetch(address, cache_folder() / name, progress=False)


def _hub() -> str:
    """The address of the hub, or of the user's mirror of it.

    Raises:
        InvalidProblemError: The mirror is not reached by https, and the user has not
            said that this is meant.
    """
    hub = (os.environ.get(HUB_VARIABLE) or HUB).rstrip("/")
    scheme = hub.partition("://")[0].lower()
    meant = scheme == "http" and os.environ.get(HTTP_VARIABLE) == "1"
    if scheme == "https" or meant:
        return hub
    message = (
        f"{HUB_VARIABLE} is {hub!r}, which does not begin with https://. Whoever is on "
        "the way to it could replace the data: the arrays have no checksums of their "
        "own. Nothing was fetched. Give the mirror's https address, or, if it is on "
        f"this machine or in a network that you trust, set {HTTP_VARIABLE}=1 for http."
    )
    raise InvalidProblemError(message)


@contextmanager
def _forgetting(*paths: Path) -> Iterator[None]:
    """Files of the cache that turn out wrong are not in the way of the next attempt."""
    try:
        yield
    except InvalidDataError:
        for path in paths:
            _discard_from_cache(path)
        raise


def _discard_from_cache(path: Path) -> None:
    own = own_folder()  # it may lie in the cache
    if path.is_relative_to(cache_folder()) and not (own and path.is_relative_to(own)):
        discard(path)
