"""ClimSim's rows: what a reader returns, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneproj_paper.data.climsim_calendar import stamp
from oneproj_paper.data.climsim_rows import (
    Rows,
    concatenate,
    daily,
    read_rows,
    write_rows,
)
from oneproj_paper.errors import InvalidDataError


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
        ({"precc": np.zeros((3, 2))}, r"precc \(3, 2\)"),
        ({"precc": np.array(0.0)}, r"precc \(\)"),
        ({"X": np.array(0.0)}, r"X is \(\)"),
        ({"feature_names": np.array("T")}, "124 variables"),
        ({"X": np.full((3, 124), "warm")}, "finite numbers in X"),
        ({"X": np.full((3, 124), np.nan)}, "finite numbers in X"),
        ({"precc": np.array([0.0, np.inf, 0.0])}, "finite numbers in X and precc"),
        ({"ymd": np.full(3, "May")}, "whole ones in ymd"),
        ({"location": np.array([5, 6, 384])}, "from 0 to 383"),
        ({"location": np.array([5, 6, -1])}, "from 0 to 383"),
        ({"location": np.array([5.5, 6.0, 7.0])}, "whole ones"),
    ],
)
def test_another_archive_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDataError, match=message):
        read_rows(write(tmp_path / "rows.npz", **changes))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.npz")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InvalidDataError, match="could not be read"):
        read_rows(path)


def test_a_flipped_bit_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.npz")
    content = bytearray(path.read_bytes())
    content[content.index(b"X.npy") + 400] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidDataError, match="CRC"):
        read_rows(path)


def test_every_damaged_byte_of_a_compressed_archive_is_a_sentence(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, **arrays())
    content = path.read_bytes()
    first = content.index(b"X.npy") + 40
    for place in range(first, first + 60):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(InvalidDataError, match="could not be read"):
            read_rows(path)


def test_one_array_is_no_archive(tmp_path: Path) -> None:
    with (tmp_path / "rows.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InvalidDataError, match="it has: one array without a name"):
        read_rows(tmp_path / "rows.npz")


def test_rows_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.npz"))
    write_rows(tmp_path / "again.tmp", rows)
    again = read_rows(tmp_path / "again.tmp")
    for name in ("x", "rain", "location", "time"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows, name))
    assert again.names == rows.names


def test_rows_of_several_files_are_joined(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.npz"))
    both = concatenate([rows, rows.where(rows.rain > 0)])
    assert both.location.tolist() == [5, 6, 5, 6, 5]
    assert both.x.shape == (5, 124)


def test_a_day_is_the_mean_of_its_steps_at_each_location() -> None:
    rng = np.random.default_rng(0)
    n, date = 600, rng.integers(10_201, 10_206, size=600)
    x, rain = rng.normal(size=(n, 3)), rng.gamma(1.0, size=n)
    location = rng.integers(104, 108, size=n)
    rows = Rows(x, rain, location, stamp(date, rng.integers(0, 86_400, n)), ("a",) * 3)
    days = daily(rows)
    assert len(days.rain) == 5 * 4
    assert bool((np.diff(days.time) >= 0).all())
    for k in range(len(days.rain)):
        own = (date == days.time[k] // 100_000) & (location == days.location[k])
        np.testing.assert_allclose(days.x[k], x[own].mean(0), rtol=1e-12)
        np.testing.assert_allclose(days.rain[k], rain[own].mean(), rtol=1e-12)
