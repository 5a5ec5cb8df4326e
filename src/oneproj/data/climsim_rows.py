"""Rows of ClimSim's low-resolution set: the state of one column at one time, and rain.

``Rows`` is what every reader of ClimSim files has to produce; the splits and labels
of ``climsim.py`` know nothing of files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneproj.data.extras import require
from oneproj.data.tables import Array
from oneproj.errors import InvalidDataError

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

VARIABLES = 124
"""60 temperatures, 60 humidities, pressure, insolation and two surface fluxes."""


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
    """Larger is later; equal for rows of the same time step."""
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


def read_rows(path: Path) -> Rows:
    """Read a sample in one NumPy archive.

    Its arrays: ``X`` (n, 124), ``precc`` in m/s, ``location``, ``ymd`` (year, month and
    day as one number), ``tod`` (seconds of the day) and ``feature_names``.

    Raises:
        InvalidDataError: An array is not there or has the wrong size.
    """
    wanted = ("X", "precc", "location", "ymd", "tod", "feature_names")
    with np.load(path, allow_pickle=False) as archive:
        absent = [name for name in wanted if name not in archive]
        if absent:
            message = (
                f"{path} has no array {', '.join(absent)}; it has: "
                f"{', '.join(archive)}. It may be another file of the same name."
            )
            raise InvalidDataError(message)
        x, rain, location, day, second, names = (archive[name] for name in wanted)
    rows = {len(array) for array in (x, rain, location, day, second)}
    if len(rows) > 1 or x.shape[1:] != (VARIABLES,) or len(names) != VARIABLES:
        message = (
            f"{path} should hold {VARIABLES} variables and one rain rate per row, but "
            f"X is {x.shape}, precc {rain.shape}. It may be truncated."
        )
        raise InvalidDataError(message)
    seconds_a_day = 100_000  # more than there are, so that days stay apart
    time = day.astype(np.int64) * seconds_a_day + second
    return Rows(x.astype(np.float64), rain, location, time, tuple(map(str, names)))


def read_grid(path: Path) -> tuple[Array, Array]:
    """Latitude and longitude of every column, in degrees, from the grid's netCDF file.

    The file is in the CDF-5 format, which SciPy does not read and netCDF4 does.
    """
    with require("netCDF4").Dataset(path) as file:
        lat, lon = (
            np.asarray(file[name][:], dtype=np.float64) for name in ("lat", "lon")
        )
    return lat, lon
