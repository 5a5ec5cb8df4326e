"""ClimSim's own formats: on small files that the test writes, and on the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

from oneproj_paper.data.climsim_files import NORM, read_grid, read_pair, read_subsampled
from oneproj_paper.data.climsim_rows import LOCATIONS, NAMES, read_rows
from oneproj_paper.errors import InvalidDataError

STEPS, COLUMNS, LEVELS = 3, 384, 60
ALL = np.arange(COLUMNS)
PROFILES = ("state_t", "state_q0001")
SCALARS = ("state_ps", "pbuf_SOLIN", "pbuf_LHFLX", "pbuf_SHFLX")
SAMPLE = "climsim/climsim_lowres_rows.npz"


def netcdf(path: Path, variables: dict[str, Any], *, form: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, values in variables.items():
            array = np.asarray(values)
            sizes = [f"d{size}" for size in array.shape]
            for name_of_size, size in zip(sizes, array.shape, strict=True):
                if name_of_size not in file.dimensions:
                    file.createDimension(name_of_size, size)
            kind = "i4" if array.dtype.kind == "i" else "f8"
            file.createVariable(name, kind, sizes)[...] = array
    return path


def write_pair(folder: Path, *, tod: int = 1200, columns: int = COLUMNS) -> list[Path]:
    rng = np.random.default_rng(0)
    clock = {"ymd": np.int32(10_201), "tod": np.int32(1200)}
    state = {n: rng.gamma(9.0, 30.0, size=(LEVELS, COLUMNS)) for n in PROFILES}
    state |= {name: rng.normal(size=COLUMNS) for name in SCALARS}
    rain = {"cam_out_PRECC": rng.gamma(1.0, 1e-8, size=columns)}
    after = clock | {"tod": np.int32(tod)} | rain
    form = "NETCDF3_64BIT_DATA"
    return [
        netcdf(folder / "mli.nc", clock | state, form=form),
        netcdf(folder / "mlo.nc", after, form=form),
    ]


def write_norm(folder: Path) -> list[Path]:
    rng = np.random.default_rng(1)
    paths = []
    for name in NORM:
        values: dict[str, Any] = {n: rng.normal(size=LEVELS) for n in PROFILES}
        values |= {n: np.float64(rng.normal()) for n in SCALARS}
        paths.append(netcdf(folder / name, values, form="NETCDF4"))
    return paths


def write_arrays(folder: Path) -> list[Path]:
    rng = np.random.default_rng(2)
    paths = [folder / "train_input.npy", folder / "train_target.npy"]
    for path, width in zip(paths, (124, 128), strict=True):
        np.save(path, rng.normal(size=(STEPS * COLUMNS, width)).astype(np.float32))
    return paths


def flat(path: Path) -> np.ndarray:
    with netCDF4.Dataset(path) as file:
        return np.concatenate([np.ravel(file[n][...]) for n in (*PROFILES, *SCALARS)])


def test_the_grid_is_read_from_its_format(tmp_path: Path) -> None:
    grid = {"lat": [-10.0, 0.0, 80.0], "lon": [0.0, 90.0, 350.0]}
    path = netcdf(tmp_path / "grid.nc", grid, form="NETCDF3_64BIT_DATA")
    assert path.read_bytes()[:4] == b"CDF\x05"
    lat, lon = read_grid(path)
    assert lat.tolist() == [-10.0, 0.0, 80.0]
    assert lon.tolist() == [0.0, 90.0, 350.0]


def test_a_pair_is_one_row_per_column_of_the_grid(tmp_path: Path) -> None:
    mli, mlo = write_pair(tmp_path)
    rows = read_pair(mli, mlo)
    with netCDF4.Dataset(mli) as before, netCDF4.Dataset(mlo) as after:
        np.testing.assert_array_equal(rows.x[:, 7], before["state_t"][7])
        np.testing.assert_array_equal(rows.x[:, 60 + 59], before["state_q0001"][59])
        np.testing.assert_array_equal(rows.x[:, 123], before["pbuf_SHFLX"][:])
        np.testing.assert_array_equal(rows.rain, after["cam_out_PRECC"][:])
    assert set(rows.time.tolist()) == {1_020_101_200}
    np.testing.assert_array_equal(rows.location, ALL)
    assert rows.names[119:122] == ("state_q0001_59", "state_ps", "pbuf_SOLIN")


def test_files_of_different_times_are_no_pair(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="different times, 1020101200 and"):
        read_pair(*write_pair(tmp_path, tod=2400))


def test_another_grid_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=r"\(384, 124\) and \(5,\)"):
        read_pair(*write_pair(tmp_path, columns=5))


def test_other_netcdf_files_are_refused(tmp_path: Path) -> None:
    mli, mlo = write_pair(tmp_path)
    with pytest.raises(InvalidDataError, match=r"another netCDF.*state_t"):
        read_pair(mlo, mlo)
    mli.write_bytes(b"no netCDF at all")
    with pytest.raises(InvalidDataError, match="could not be read as netCDF"):
        read_pair(mli, mlo)


def test_a_truncated_pair_is_not_read_as_zeros(tmp_path: Path) -> None:
    mli, mlo = write_pair(tmp_path)
    content = mli.read_bytes()
    mli.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidDataError, match="its variables alone need"):
        read_pair(mli, mlo)
    mli.write_bytes(content)
    with netCDF4.Dataset(mli, "a") as file:
        file["state_t"][3, 5] = 0.0
    with pytest.raises(InvalidDataError, match="0 K or less"):
        read_pair(mli, mlo)


def test_arrays_are_put_back_into_physical_units(tmp_path: Path) -> None:
    norm = write_norm(tmp_path)
    inputs, targets = write_arrays(tmp_path)
    rows = read_subsampled(inputs, targets, norm, first=10_201, locations=LOCATIONS)
    mean, high, low = map(flat, norm)
    x, y = np.load(inputs), np.load(targets)
    for k in (0, 7, 8, 23):
        step, place = divmod(k, 8)
        row = step * COLUMNS + 104 + place
        expected = x[row].astype(float) * (high - low) + mean
        np.testing.assert_allclose(rows.x[k], expected, rtol=1e-12)
        assert rows.rain[k] == float(y[row, 123]) / 1_313_280
        assert rows.location[k] == 104 + place
        assert rows.time[k] == 1_020_100_000 + 8_400 * step


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("input", lambda a: a[:-1], "whole steps of 384 rows"),
        ("input", np.ravel, "whole steps"),
        ("target", lambda a: a[:, :100], "with 128 values each"),
        ("target", lambda a: a[:COLUMNS], "holds 1,152 rows and"),
    ],
    ids=["part of a step", "flat", "narrower", "shorter"],
)
def test_arrays_of_another_shape_are_refused(
    tmp_path: Path,
    name: str,
    damage: Callable[[np.ndarray], np.ndarray],
    message: str,
) -> None:
    norm = write_norm(tmp_path)
    inputs, targets = write_arrays(tmp_path)
    path = tmp_path / f"train_{name}.npy"
    np.save(path, damage(np.load(path)))
    with pytest.raises(InvalidDataError, match=message):
        read_subsampled(inputs, targets, norm, first=10_201, locations=ALL)


@pytest.mark.parametrize("kept", [0, 100, -8])
def test_truncated_arrays_are_refused(tmp_path: Path, kept: int) -> None:
    norm = write_norm(tmp_path)
    inputs, targets = write_arrays(tmp_path)
    inputs.write_bytes(inputs.read_bytes()[:kept])
    with pytest.raises(InvalidDataError, match="could not be read"):
        read_subsampled(inputs, targets, norm, first=10_201, locations=ALL)


def test_another_normalisation_is_refused(tmp_path: Path) -> None:
    norm = write_norm(tmp_path)
    netcdf(norm[0], {n: np.zeros(3) for n in (*PROFILES, *SCALARS)}, form="NETCDF4")
    with pytest.raises(InvalidDataError, match="has 18 in all"):
        read_subsampled(*write_arrays(tmp_path), norm, first=10_201, locations=ALL)


# --- the real files: one simulation in three formats --------------------------


def test_the_real_pair_is_the_sample(real_data: Path) -> None:
    stem = real_data / "climsim/raw/E3SM-MMF.{}.0008-01-01-62400.nc"
    rows = read_pair(*(Path(str(stem).format(kind)) for kind in ("mli", "mlo")))
    sample = read_rows(real_data / SAMPLE)
    sample = sample.where(sample.time == rows.time[0])
    assert rows.names == sample.names == NAMES
    np.testing.assert_array_equal(rows.location, sample.location)
    np.testing.assert_array_equal(rows.rain, sample.rain)
    np.testing.assert_array_equal(rows.x.astype(np.float32), sample.x)


def test_the_real_arrays_are_the_sample(real_data: Path) -> None:
    folder = real_data / "climsim"
    rows = read_subsampled(
        folder / "subsampled/train_input.npy",
        folder / "subsampled/train_target.npy",
        [folder / "norm" / name for name in NORM],
        first=10_201,
        locations=ALL,
    )
    assert len(rows.rain) == 3_840
    sample = read_rows(real_data / SAMPLE)
    sample = sample.where(np.isin(sample.time, rows.time))
    order = np.lexsort((sample.location, sample.time))
    np.testing.assert_array_equal(rows.time, sample.time[order])
    np.testing.assert_array_equal(rows.location, sample.location[order])
    np.testing.assert_array_equal(rows.rain, sample.rain[order])
    # The sample was rounded to float32 after the same formula.
    np.testing.assert_allclose(rows.x, sample.x[order], rtol=1e-7, atol=1e-12)


def test_the_real_units_are_physical(real_data: Path) -> None:
    stem = real_data / "climsim/raw/E3SM-MMF.{}.0008-01-01-62400.nc"
    rows = read_pair(*(Path(str(stem).format(kind)) for kind in ("mli", "mlo")))
    columns = dict(zip(rows.names, rows.x.T, strict=True))
    assert 220 < columns["state_t_59"].min() < columns["state_t_59"].max() < 325  # K
    assert 0 < columns["state_q0001_59"].min() < columns["state_q0001_59"].max() < 0.03
    assert 5e4 < columns["state_ps"].min() < columns["state_ps"].max() < 1.1e5  # Pa
    assert 0 <= rows.rain.min() < rows.rain.max() < 1e-5  # m/s: below 900 mm a day
