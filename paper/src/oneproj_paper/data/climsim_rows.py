"""Rows of ClimSim's low-resolution set: the state of one column at one time, and rain.

``Rows`` is what every reader of ClimSim files has to produce; the splits and labels
of the experiments know nothing of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as DeflateError  # noqa: N812 - an error, by its name

import numpy as np
from numpy.typing import NDArray

from oneproj.vectors.arithmetic import Array, Mask
from oneproj_paper.data.climsim_calendar import (
    STAMP_DAY,
    Integers,
    date_of_stamp,
    stamp,
)
from oneproj_paper.errors import InvalidDataError

LEVELS = 60
COLUMNS = 384
"""Of the grid, and so rows of one time step."""
PROFILES = ("state_t", "state_q0001")
"""Temperature in K and specific humidity in kg/kg, one value per level."""
SCALARS = ("state_ps", "pbuf_SOLIN", "pbuf_LHFLX", "pbuf_SHFLX")
"""Surface pressure in Pa; insolation, latent and sensible heat flux in W/m2."""
NAMES = (
    *(f"{name}_{level}" for name in PROFILES for level in range(LEVELS)),
    *SCALARS,
)
VARIABLES = len(NAMES)
ARRAYS = ("X", "precc", "location", "ymd", "tod", "feature_names")
"""Of a sample in one file."""
GROUP = 4
"""Consecutive locations of a group, the paper's domains."""
TARGET_GROUP, SOURCE_GROUP = 26, 27
LOCATIONS = np.arange(GROUP * TARGET_GROUP, GROUP * (SOURCE_GROUP + 1))
"""Of both groups: 104 to 111."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per column of the grid and time step.

    Example:
        >>> rows = Rows(np.eye(2), np.array([0.0, 1e-7]), np.array([3, 4]),
        ...             np.array([8, 9]), ("a", "b"))
        >>> rows.where(rows.rain > 0).location.tolist()
        [4]
    """

    x: Array
    """The state, in physical units, shape (n, d)."""
    rain: Array
    """The precipitation rate, in m/s."""
    location: Integers
    """The number of the column, 0 to 383."""
    time: Integers
    """A stamp of ``climsim_calendar``: larger is later."""
    names: tuple[str, ...]

    def where(self, mask: Mask) -> Rows:
        """The rows for which the mask is true."""
        return Rows(
            self.x[mask],
            self.rain[mask],
            self.location[mask],
            self.time[mask],
            self.names,
        )


def concatenate(several: Sequence[Rows]) -> Rows:
    """All rows, one after the other; the variables have to be the same."""
    return Rows(
        np.concatenate([rows.x for rows in several]),
        np.concatenate([rows.rain for rows in several]),
        np.concatenate([rows.location for rows in several]),
        np.concatenate([rows.time for rows in several]),
        several[0].names,
    )


def daily(rows: Rows) -> Rows:
    """The mean state and the mean rain rate of each day at each location.

    In the order of days, then of locations. A day is the mean of the steps it has.

    Example:
        >>> rows = Rows(np.array([[1.0], [5.0], [7.0]]), np.array([0.0, 2.0, 4.0]),
        ...             np.array([6, 6, 6]), stamp(np.array([101, 101, 102]),
        ...                                        np.array([0, 1200, 0])), ("a",))
        >>> days = daily(rows)
        >>> days.x.tolist(), days.rain.tolist(), days.time.tolist()
        ([[3.0], [7.0]], [1.0, 4.0], [10100000, 10200000])
    """
    key = date_of_stamp(rows.time) * STAMP_DAY + rows.location
    order = np.argsort(key, kind="stable")
    found, first, count = np.unique(key[order], return_index=True, return_counts=True)
    return Rows(
        np.add.reduceat(rows.x[order], first, axis=0) / count[:, None],
        np.add.reduceat(rows.rain[order], first) / count,
        rows.location[order][first],
        stamp(date_of_stamp(found), np.zeros_like(found)),
        rows.names,
    )


def read_rows(path: Path) -> Rows:
    """Read a sample in one NumPy archive.

    Its arrays: ``X`` (n, 124), ``precc`` in m/s, ``location``, ``ymd`` (year, month and
    day as one number), ``tod`` (seconds of the day) and ``feature_names``.

    Raises:
        InvalidDataError: An array is not there, is damaged, has the wrong size, or
            holds what cannot be.
    """
    x, rain, location, date, second, names = _arrays(path)
    rows = x.shape[:1]
    alike = all(each.shape == rows for each in (rain, location, date, second))
    if x.shape != (*rows, VARIABLES) or not alike or names.shape != (VARIABLES,):
        message = (
            f"{path} should hold {VARIABLES} variables and one rain rate per row, but "
            f"X is {x.shape}, precc {rain.shape}. It may be truncated."
        )
        raise InvalidDataError(message)
    whole = all(each.dtype.kind in "iu" for each in (location, date, second))
    numbers = all(each.dtype.kind in "iuf" for each in (x, rain))
    possible = whole and numbers and np.isfinite(x).all() and np.isfinite(rain).all()
    if not possible or not ((location >= 0) & (location < COLUMNS)).all():
        message = (
            f"{path} should hold finite numbers in X and precc, and whole ones in ymd, "
            f"tod and location, which goes from 0 to {COLUMNS - 1}. It may be damaged: "
            "fetch it again."
        )
        raise InvalidDataError(message)
    time = stamp(date, second)
    return Rows(x.astype(np.float64), rain, location, time, tuple(map(str, names)))


def _arrays(path: Path) -> list[NDArray[Any]]:
    """The arrays of a sample, in the order of ``ARRAYS``."""
    there, found = ["one array without a name"], dict[str, NDArray[Any]]()
    try:
        # Opened here, because np.load does not close what it cannot read.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.ndarray):
                there = list(archive)
                found = {name: archive[name] for name in ARRAYS if name in there}
    except (
        *(BadZipFile, DeflateError, NotImplementedError),
        *(OSError, EOFError, ValueError),
    ) as error:
        message = f"{path} could not be read: {error}. It may be truncated."
        raise InvalidDataError(message) from error
    absent = [name for name in ARRAYS if name not in found]
    if absent:
        message = (
            f"{path} has no array {', '.join(absent)}; it has: {', '.join(there)}. It "
            "may be another file of the same name."
        )
        raise InvalidDataError(message)
    return [found[name] for name in ARRAYS]


def write_rows(path: Path, rows: Rows) -> None:
    """Write what ``read_rows`` reads; the state is rounded to float32, as its source.

    The path may have any ending: unlike ``np.savez``, nothing is added to it.
    """
    with path.open("wb") as file:
        np.savez(
            file,
            X=rows.x.astype(np.float32),
            precc=rows.rain,
            location=rows.location,
            ymd=date_of_stamp(rows.time),
            tod=rows.time % STAMP_DAY,
            feature_names=np.array(rows.names),
        )
