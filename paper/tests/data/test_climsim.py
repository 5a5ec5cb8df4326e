"""The ClimSim stand-ins: on small files in the same formats, and on the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from oneproj_paper.data import climsim_abstention, climsim_transfer
from oneproj_paper.data.climsim_labels import Sizes
from oneproj_paper.data.climsim_tropics import GRID_FILE, SAMPLE_FILE
from oneproj_paper.data.samples import Splits
from oneproj_paper.data.splits import chronological_split
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

STEPS, COLUMNS = 40, 12
LAT = np.array([0.0, 10.0, -20.0, 15.0, 5.0, -5.0, 18.0, -9.0, 21.0, -40.0, 60.0, 89.0])
LON = np.array([10.0, 200.0] * 6)
LOADERS = [climsim_abstention, climsim_transfer]
Array = NDArray[np.float64]


def rain() -> Array:
    """Of every row; the dry ones are 0."""
    rng = np.random.default_rng(1)
    rates = rng.gamma(1.0, 1e-8, size=STEPS * COLUMNS)
    return np.where(rng.random(STEPS * COLUMNS) < 0.1, 0.0, rates)


def write(
    folder: Path, *, state: Array | None = None, rates: Array | None = None
) -> None:
    n = STEPS * COLUMNS
    rng = np.random.default_rng(0)
    sample = folder / SAMPLE_FILE
    sample.parent.mkdir(exist_ok=True)
    order = np.repeat(rng.permutation(STEPS), COLUMNS)  # not in the order of time
    np.savez(
        sample,
        X=rng.normal(250.0, 10.0, size=(n, 124)) if state is None else state,
        precc=rain() if rates is None else rates,
        location=np.tile(np.arange(COLUMNS), STEPS),
        ymd=80101 + order // 4,
        tod=1200 * (order % 4),
        feature_names=np.array([f"v{k}" for k in range(124)]),
    )
    with netCDF4.Dataset(folder / GRID_FILE, "w", format="NETCDF3_64BIT_DATA") as file:
        file.createDimension("ncol", COLUMNS)
        for name, values in (("lat", LAT), ("lon", LON)):
            file.createVariable(name, "f8", ("ncol",))[:] = values


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = "oneproj_paper.data.climsim_tropics"
    monkeypatch.setattr(f"{module}.ROWS", STEPS * COLUMNS)
    monkeypatch.setattr(f"{module}.COLUMNS", COLUMNS)
    monkeypatch.setattr(f"{module}.SIZES", Sizes(9, 6, 4, 4))
    monkeypatch.setattr("oneproj_paper.data.climsim_labels.HEAVY", 0.6)
    write(folder)
    return folder


def clock(archive: Mapping[str, Array]) -> Array:
    return archive["ymd"] * 1e5 + archive["tod"]


def state(folder: Path) -> Array:
    with np.load(folder / SAMPLE_FILE) as archive:
        found: Array = archive["X"]
    return found


def band_rows(folder: Path) -> tuple[Array, Array, torch.Tensor]:
    """State, rain and time of the rainy rows in the band, computed independently."""
    with np.load(folder / SAMPLE_FILE) as archive:
        keep = (np.abs(LAT[archive["location"]]) <= 20) & (archive["precc"] > 0)
        time = torch.tensor(clock(archive)[keep])
        return archive["X"][keep], archive["precc"][keep], time


def test_abstention_labels_and_features_follow_the_training_part(small: Path) -> None:
    x, rates, time = band_rows(small)
    parts = [rows.numpy() for rows in chronological_split(time)]
    threshold = np.quantile(rates[parts[0]], 0.6)
    features = np.hstack([x, x**2])
    features = (features - features[parts[0]].mean(0)) / features[parts[0]].std(0)
    splits = climsim_abstention(dtype=torch.float64)
    samples = (splits.train, splits.validation, splits.test)
    for sample, rows in zip(samples, parts, strict=True):
        np.testing.assert_allclose(sample.x, features[rows], rtol=1e-7, atol=1e-9)
        assert sample.y.tolist() == (rates[rows] > threshold).astype(int).tolist()
    assert len(splits.names) == 248
    assert (splits.names[0], splits.names[124]) == ("v0", "v0^2")


def test_transfer_parts_are_balanced_and_from_their_regions(small: Path) -> None:
    # The first variable tells east from west, the second the time.
    marked = state(small)
    with np.load(small / SAMPLE_FILE) as archive:
        marked[:, 0] = LON[archive["location"]]
        marked[:, 1] = clock(archive)
    write(small, state=marked)
    splits = climsim_transfer(seed=1, dtype=torch.float64)
    assert splits.source.counts == (9, 9)
    assert splits.train.counts == (6, 6)
    assert splits.validation.counts == splits.test.counts == (4, 4)
    east = splits.source.x[:, 0].unique()  # type: ignore[no-untyped-call]
    parts = (splits.train, splits.validation, splits.test)
    west = torch.cat([sample.x[:, 0] for sample in parts])
    assert len(east) == 1
    assert bool((west > east).all())
    times = [sample.x[:, 1] for sample in parts]
    assert times[0].max() < times[1].min() <= times[1].max() < times[2].min()
    assert splits.source.x[:, 1].max() < times[1].min()


@pytest.mark.usefixtures("small")
def test_transfer_is_scaled_by_both_training_samples() -> None:
    splits = climsim_transfer(seed=1, dtype=torch.float64)
    x = torch.cat([splits.source.x, splits.train.x])
    assert x.mean(0).abs().max() < 1e-10
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(124).double())


@pytest.mark.parametrize("load", LOADERS)
def test_test_rows_do_not_touch_training_features(
    load: Callable[..., Splits], small: Path
) -> None:
    before = load(seed=2)
    with np.load(small / SAMPLE_FILE) as archive:
        time = clock(archive)
    _, _, kept = band_rows(small)
    late = time >= float(kept[chronological_split(kept).test].min())
    assert 0 < late.sum() < len(late) / 3
    changed = np.where(late[:, None], 3.0 * state(small), state(small))
    # More rain as well: neither scales nor the threshold may see it.
    write(small, state=changed, rates=np.where(late, 1.5 * rain(), rain()))
    after = load(seed=2)
    assert torch.equal(before.train.x, after.train.x)
    assert torch.equal(before.train.y, after.train.y)
    assert not torch.equal(before.test.x, after.test.x)


@pytest.mark.usefixtures("small")
def test_seeds_draw_transfer_rows_and_leave_abstention_alone() -> None:
    first, again, other = (climsim_transfer(seed=s).train.x for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(climsim_abstention(1).train.x, climsim_abstention(2).train.x)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("load", LOADERS)
def test_stand_ins_say_so(load: Callable[..., Splits]) -> None:
    splits = load()
    assert splits.stand_in
    assert splits.note.startswith("Stand-in")


@pytest.mark.usefixtures("small")
def test_too_few_heavy_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(9, 6, 4, 1_000)
    monkeypatch.setattr("oneproj_paper.data.climsim_tropics.SIZES", sizes)
    with pytest.raises(InvalidDataError, match="where 1000 are needed"):
        climsim_transfer()


@pytest.mark.usefixtures("small")
def test_another_sample_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneproj_paper.data.climsim_tropics.ROWS", 48_768)
    with pytest.raises(InvalidDataError, match="holds 480 rows, expected are 48,768"):
        climsim_abstention()


@pytest.mark.usefixtures("small")
def test_another_grid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneproj_paper.data.climsim_tropics.COLUMNS", 384)
    with pytest.raises(InvalidDataError, match="12 columns of a grid"):
        climsim_abstention()


@pytest.mark.parametrize("load", LOADERS)
def test_a_missing_file_is_named(load: Callable[..., Splits], folder: Path) -> None:
    with pytest.raises(DataNotFoundError, match=str(folder)) as caught:
        load()
    assert "`oneproj-paper data prepare climsim`" in str(caught.value)


# --- the real files -----------------------------------------------------------


@pytest.mark.usefixtures("real_data")
def test_the_real_abstention_counts() -> None:
    splits = climsim_abstention()
    counts = [s.counts for s in (splits.train, splits.validation, splits.test)]
    assert counts == [(6_083, 321), (1_923, 127), (2_002, 80)]
    assert sum(map(sum, counts)) == 10_536
    x = splits.train.x.double()
    torch.testing.assert_close(x.std(0), torch.ones(248).double(), atol=1e-3, rtol=0)


@pytest.mark.usefixtures("real_data")
def test_the_real_transfer_counts() -> None:
    splits = climsim_transfer(seed=0)
    assert splits.source.counts == (190, 190)
    assert splits.train.counts == (100, 100)
    assert splits.validation.counts == (30, 30)
    assert splits.test.counts == (35, 35)
    rows = torch.cat(
        [s.x for s in (splits.source, splits.train, splits.validation, splits.test)]
    )
    assert len(rows.unique(dim=0)) == len(rows)
