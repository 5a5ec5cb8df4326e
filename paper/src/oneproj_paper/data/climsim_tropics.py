"""The stand-in for the paper's ClimSim sample: the tropics at 127 time steps.

Rows with rain in the band ``|latitude| <= 20``, split chronologically. For transfer
the band's eastern half is the source and the western half the target.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data.climsim_files import read_grid
from oneproj_paper.data.climsim_labels import Regions, Sizes, heavy
from oneproj_paper.data.climsim_rows import COLUMNS, Rows, read_rows
from oneproj_paper.data.climsim_source import NAME
from oneproj_paper.data.find import find
from oneproj_paper.data.splits import chronological_split
from oneproj_paper.errors import InvalidDataError

SAMPLE_FILE = "climsim/climsim_lowres_rows.npz"
GRID_FILE = "climsim/ClimSim_low-res_grid-info.nc"
ROWS = 48_768
"""Of the sample: 127 time steps of 384 columns."""
TROPICS = 20.0
"""Degrees of latitude on either side of the equator."""
NORTH = 90.0
"""Degrees of latitude of the pole."""
SOURCE_EAST = 180.0
"""The transfer source is the band from 0 to 180 degrees east, the target the rest."""
SIZES = Sizes(source=190, train=100, validation=30, test=35)
"""What the stand-in allows, where the paper has 950, 100, 200, 400."""

ABSTENTION_NOTE = (
    "Stand-in: the paper's 11,373 daily rows of locations 104 to 111 are not "
    "distributed. Tropical rows with rain of 127 time steps of the same set take their "
    "place. Chosen here, for the paper does not say: the squares are those of the "
    "variables in their own units, and all 248 features are then standardised."
)
TRANSFER_NOTE = (
    "Stand-in: the paper's locations are not distributed. The eastern half of the "
    "tropical band is the source, the western half the target, with fewer rows per "
    "class than the paper: 190 source and 100 target training rows, 30 for validation, "
    "35 for the test. Variables are standardised."
)


def tropical_rain() -> Regions:
    """The labelled rows of the band, in two regions.

    Raises:
        DataNotFoundError: A file is in neither place; see ``oneproj_paper.data.find``.
        InvalidDataError: A file is not the one expected.
    """
    rows = read_sample(find(SAMPLE_FILE, data=NAME))
    lat, lon = read_full_grid(find(GRID_FILE, data=NAME))
    near = np.abs(lat[rows.location]) <= TROPICS
    rows = rows.where(near & (rows.rain != 0))
    parts = chronological_split(torch.tensor(rows.time))
    east = lon[rows.location] < SOURCE_EAST
    return Regions(rows, parts, heavy(rows, parts), east, SIZES)


def read_sample(path: Path) -> Rows:
    """The rows of all 127 time steps.

    Raises:
        InvalidDataError: There are more or fewer.
    """
    rows = read_rows(path)
    if len(rows.rain) != ROWS:
        message = (
            f"{path} holds {len(rows.rain):,} rows, expected are {ROWS:,}. It may be "
            "truncated or another sample: fetch it again."
        )
        raise InvalidDataError(message)
    return rows


def read_full_grid(path: Path) -> tuple[Array, Array]:
    """Latitude and longitude of the 384 columns.

    Raises:
        InvalidDataError: There are more or fewer, or one is not on the earth.
    """
    lat, lon = read_grid(path)
    if lat.shape != (COLUMNS,) or lon.shape != (COLUMNS,):
        message = f"{path} holds {lat.size} columns of a grid, expected are {COLUMNS}."
        raise InvalidDataError(message)
    if not ((np.abs(lat) <= NORTH) & (lon >= 0) & (lon <= 2 * SOURCE_EAST)).all():
        message = (
            f"{path} has latitudes beyond {NORTH:g} degrees, or longitudes that are "
            "not from 0 to 360. It may be damaged: fetch it again."
        )
        raise InvalidDataError(message)
    return lat, lon
