"""ClimSim's rows: what a reader returns, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

from oneproj.data.climsim_rows import read_grid, read_rows
from oneproj.errors import InvalidDataError


def arrays() -> dict[str, Any]:
    return {
        "X": np.arange(3 * 124, dtype=np.float32).reshape(3, 124),
        "precc": np.array([0.0, 1e-8, 2e-8]),
        "location": np.array([5, 6, 5]),
        "ymd": np.array([10201, 10201, 10202]),
        "tod": np.array([0, 86000, 0]),
        "feature_names": np.array([f"v{k}" for k in range(124)]),
        "ignored": np.zeros(1),
    }


def write(path: Path, **changes: Any) -> Path:  # noqa: ANN401 - any array
    kept = {k: v for k, v in (arrays() | changes).items() if v is not None}
    np.savez(path, **kept)
    return path


def test_rows_have_their_state_rain_place_and_time(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.npz"))
    np.testing.assert_array_equal(rows.x, arrays()["X"])
    assert rows.x.dtype == np.float64
    np.testing.assert_array_equal(rows.rain, [0.0, 1e-8, 2e-8])
    assert rows.location.tolist() == [5, 6, 5]
    assert rows.time.tolist() == sorted(set(rows.time.tolist()))
    assert rows.names[:2] == ("v0", "v1")


def test_a_mask_selects_rows(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.npz"))
    rainy = rows.where(rows.rain > 0)
    assert rainy.location.tolist() == [6, 5]
    np.testing.assert_array_equal(rainy.x, rows.x[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precc": None, "tod": None}, r"no array precc, tod; it has: X"),
        ({"X": np.zeros((3, 100))}, r"124 variables .* X is \(3, 100\)"),
        ({"precc": np.zeros(2)}, r"precc \(2,\)"),
    ],
)
def test_another_archive_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDataError, match=message):
        read_rows(write(tmp_path / "rows.npz", **changes))


def test_the_grid_is_read_from_its_format(tmp_path: Path) -> None:
    path = tmp_path / "grid.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
        file.createDimension("ncol", 3)
        for name, values in (("lat", [-10.0, 0.0, 80.0]), ("lon", [0.0, 90.0, 350.0])):
            file.createVariable(name, "f8", ("ncol",))[:] = values
    assert path.read_bytes()[:4] == b"CDF\x05"
    lat, lon = read_grid(path)
    assert lat.tolist() == [-10.0, 0.0, 80.0]
    assert lon.tolist() == [0.0, 90.0, 350.0]
