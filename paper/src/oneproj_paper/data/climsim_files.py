"""ClimSim's own files: netCDF as the model wrote it, and the hub's subsampled arrays.

Both become ``Rows`` in physical units. netCDF files of one time are a pair: ``mli``
holds the state before the step, ``mlo`` the rain of the step. The subsampled arrays
are normalised: ``x = x_norm * (max - min) + mean``, and the rain rate is column 123 of
the targets divided by 1,313,280.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data.climsim_calendar import Integers, stamp, times_from
from oneproj_paper.data.climsim_rows import (
    COLUMNS,
    LEVELS,
    NAMES,
    PROFILES,
    SCALARS,
    VARIABLES,
    Rows,
)
from oneproj_paper.errors import InvalidDataError

RAIN = "cam_out_PRECC"
"""The rain rate, in m/s."""
TARGETS = 128
RAIN_TARGET = 123
RAIN_SCALE = 1_313_280.0
"""What the hub multiplied the rain rate with."""
NORM = ("input_mean.nc", "input_max.nc", "input_min.nc")
STRIDE = 7
"""The hub kept every seventh step."""


def read_variables(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Variables of a netCDF file, by name.

    The hub's files are in the CDF-5 format, which SciPy does not read and netCDF4 does.

    Raises:
        InvalidDataError: It is no netCDF file, or a variable is not there.
    """
    try:
        from netCDF4 import Dataset

        with Dataset(path) as file:
            _refuse_truncated(path, file)
            return {n: np.asarray(file[n][:], dtype=np.float64) for n in names}
    except (OSError, RuntimeError) as error:
        message = f"{path} could not be read as netCDF: {error}. It may be truncated."
    except IndexError as error:
        message = f"{path} is another netCDF file than expected: {error}."
    raise InvalidDataError(message)


def _refuse_truncated(path: Path, file: Any) -> None:  # noqa: ANN401 - of netCDF4
    """The library reads zeros where a file in a classic format has been cut off."""
    if not file.data_model.startswith("NETCDF3"):
        return
    least = sum(v.size * v.dtype.itemsize for v in file.variables.values())
    found = path.stat().st_size
    if found <= least:
        message = (
            f"{path} has {found:,} bytes, but its variables alone need {least:,}: it "
            "is truncated. Fetch it again."
        )
        raise InvalidDataError(message)


def read_grid(path: Path) -> tuple[Array, Array]:
    """Latitude and longitude of every column, in degrees, from the grid's file."""
    grid = read_variables(path, ("lat", "lon"))
    return grid["lat"], grid["lon"]


def read_pair(inputs: Path, outputs: Path) -> Rows:
    """The state and the rain of all columns at one time, from a pair of netCDF files.

    Raises:
        InvalidDataError: They are of different times, or not what they should be.
    """
    before = read_variables(inputs, (*PROFILES, *SCALARS, "ymd", "tod"))
    after = read_variables(outputs, (RAIN, "ymd", "tod"))
    times = [_time(before), _time(after)]
    if times[0] != times[1]:
        message = (
            f"{inputs} and {outputs} are of different times, {times[0]} and "
            f"{times[1]}: no pair. Fetch them again."
        )
        raise InvalidDataError(message)
    # Levels come first in the file; a row is one column of the grid.
    profiles = [before[name].T for name in PROFILES]
    x = np.hstack([*profiles, *(before[name][:, None] for name in SCALARS)])
    n = len(x)
    if not (before["state_t"] > 0).all():
        message = f"{inputs} holds temperatures of 0 K or less: it is damaged."
        raise InvalidDataError(message)
    if x.shape[1] != VARIABLES or after[RAIN].shape != (n,):
        message = (
            f"{inputs} should hold {VARIABLES} values a column and {outputs} one, but "
            f"they are {x.shape} and {after[RAIN].shape}."
        )
        raise InvalidDataError(message)
    return Rows(x, after[RAIN], np.arange(n), np.full(n, times[0]), NAMES)


def read_subsampled(
    inputs: Path,
    targets: Path,
    norm: Sequence[Path],
    *,
    first: int,
    locations: Integers,
) -> Rows:
    """Rows of some locations, from two arrays of the hub's subsampled set.

    Only what these locations need is read, so that files of gigabytes pass through
    little memory.

    Args:
        inputs: ``*_input.npy``, float32 of shape (384 * steps, 124).
        targets: ``*_target.npy``, float32 of shape (384 * steps, 128).
        norm: The files of ``NORM``, in that order.
        first: The date of the first step.
        locations: The columns of the grid to keep.

    Raises:
        InvalidDataError: A file is truncated or has another shape.
    """
    state, target = open_array(inputs, VARIABLES), open_array(targets, TARGETS)
    if len(state) != len(target):
        message = (
            f"{inputs} holds {len(state):,} rows and {targets} {len(target):,}: one of "
            "them is not complete. Fetch both again."
        )
        raise InvalidDataError(message)
    steps = len(state) // COLUMNS
    mean, high, low = map(read_norm, norm)
    x = state.reshape(steps, COLUMNS, VARIABLES)[:, locations]
    rain = target.reshape(steps, COLUMNS, TARGETS)[:, locations, RAIN_TARGET]
    width = len(locations)
    return Rows(
        (x.astype(np.float64) * (high - low) + mean).reshape(-1, VARIABLES),
        rain.astype(np.float64).reshape(-1) / RAIN_SCALE,
        np.tile(locations, steps),
        np.repeat(times_from(first, steps, STRIDE), width),
        NAMES,
    )


def _time(variables: dict[str, Array]) -> int:
    date, second = (variables[name].astype(np.int64) for name in ("ymd", "tod"))
    return int(stamp(date, second))


def open_array(path: Path, width: int) -> NDArray[np.float32]:
    """An array that stays on the disk, with whole time steps of the right width.

    Raises:
        InvalidDataError: It is truncated, or has another shape.
    """
    try:
        array: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        message = f"{path} could not be read: {error}. It may be truncated."
        raise InvalidDataError(message) from error
    if array.ndim != 2 or array.shape[1] != width or len(array) % COLUMNS:  # noqa: PLR2004 - a matrix
        message = (
            f"{path} should be whole steps of {COLUMNS} rows with {width} values each, "
            f"but its shape is {array.shape}. It may be another file."
        )
        raise InvalidDataError(message)
    return array


def read_norm(path: Path) -> Array:
    """One value per variable of a row, from a file of the normalisation.

    Raises:
        InvalidDataError: It is no netCDF file, or has other variables or levels.
    """
    found = read_variables(path, (*PROFILES, *SCALARS))
    flat = np.concatenate([np.ravel(found[name]) for name in (*PROFILES, *SCALARS)])
    if flat.shape != (VARIABLES,):
        message = (
            f"{path} should hold {LEVELS} values for each of {', '.join(PROFILES)} and "
            f"one for each of {', '.join(SCALARS)}, but has {flat.size} in all."
        )
        raise InvalidDataError(message)
    return flat
