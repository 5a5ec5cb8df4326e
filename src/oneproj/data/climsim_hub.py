"""Pieces of ClimSim from its hub: rows of the eight locations the paper uses.

Two data sets of the hub hold the same simulation. ``LEAP/subsampled_low_res`` has every
seventh step in arrays of gigabytes, ``LEAP/ClimSim_low-res`` every step in a pair of
netCDF files of 3 MB. What the user has under ONEPROJ_DATA is not fetched again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oneproj.data.cache import discard
from oneproj.data.climsim_calendar import DAY, STAMP_DAY, STEP, days_of, times_from
from oneproj.data.climsim_files import (
    NORM,
    TARGETS,
    open_array,
    read_pair,
    read_subsampled,
)
from oneproj.data.climsim_rows import COLUMNS, LOCATIONS, VARIABLES, Rows, concatenate
from oneproj.data.fetch import fetch
from oneproj.data.find import VARIABLE, cache_folder, locate
from oneproj.errors import InvalidDataError
from oneproj.progress import progress_bar

HUB = "https://huggingface.co"
HUB_VARIABLE = "HF_ENDPOINT"
"""The environment variable that names a mirror of the hub, as for its own client."""
SUBSAMPLED = "datasets/LEAP/subsampled_low_res/resolve/main"
RAW = "datasets/LEAP/ClimSim_low-res/resolve/main/train"
CODE = "https://raw.githubusercontent.com/leap-stc/ClimSim/main"
"""The authors' own repository: the normalisation is there, and not on the hub."""
NORM_FOLDER = "preprocessing/normalizations/inputs"


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
    norm = [_normalisation(file) for file in NORM]
    inputs = _array(f"{name}_input.npy", VARIABLES, steps, progress=progress)
    targets = _array(f"{name}_target.npy", TARGETS, steps, progress=progress)
    rows = read_subsampled(inputs, targets, norm, first=first, locations=LOCATIONS)
    for path in (inputs, targets):
        _discard_from_cache(path)
    return rows


def netcdf_rows(month: str, *, every: int, progress: bool | None) -> Rows:
    """The rows of every so many steps of a month; each pair is deleted when read.

    Steps are counted from the beginning of the simulation, so that months fit together.

    Raises:
        DataNotFoundError: A file could not be fetched.
        InvalidDataError: A file is not what it should be.
    """
    times = month_times(month, every)
    pieces = []
    with progress_bar(f"ClimSim {month}", len(times), enabled=progress) as advance_to:
        for done, time in enumerate(times, start=1):
            pair = [_netcdf(kind, time) for kind in ("mli", "mlo")]
            rows = read_pair(*pair)
            pieces.append(rows.where(np.isin(rows.location, LOCATIONS)))
            for path in pair:
                _discard_from_cache(path)
            advance_to(done)
    return concatenate(pieces)


def month_times(month: str, every: int) -> list[int]:
    """The stamps of every so many steps that fall into a month.

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
    own = locate(f"climsim/subsampled/{file}")
    if own is not None and len(open_array(own, width)) == steps * COLUMNS:
        return own
    path = cache_folder() / "climsim" / "subsampled" / file
    fetch(f"{_hub()}/{SUBSAMPLED}/{file}", path, progress=progress)
    found = len(open_array(path, width))
    if found != steps * COLUMNS:
        discard(path)
        message = (
            f"The hub's {file} holds {found:,} rows, expected are {steps * COLUMNS:,}. "
            "It has changed: this version of oneproj does not know its times."
        )
        raise InvalidDataError(message)
    return path


def _normalisation(file: str) -> Path:
    """A file of the normalisation, from the user's folder, the cache or its source."""
    name = f"climsim/norm/{file}"
    found = locate(name)
    if found is not None:
        return found
    address = f"{CODE}/{NORM_FOLDER}/{file}"
    return fetch(address, cache_folder() / name, progress=False)


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
    return (os.environ.get(HUB_VARIABLE) or HUB).rstrip("/")


def _discard_from_cache(path: Path) -> None:
    own = os.environ.get(VARIABLE)  # a user's folder may lie in the cache
    if path.is_relative_to(cache_folder()) and not (own and path.is_relative_to(own)):
        discard(path)
