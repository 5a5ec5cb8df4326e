"""NASA POWER: on a small file in the same format, and on the real one."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
import torch

from oneproj_paper.data import nasa_abstention as load
from oneproj_paper.data.power_tables import ARTIFACT, COLUMNS, LABEL, PREPARED
from oneproj_paper.data.samples import Sample, Splits
from oneproj_paper.data.splits import stratified_split
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

ROWS = 200
LABELS = (np.arange(ROWS) % 10 == 0).astype(float)
WEATHER = np.random.default_rng(0).normal(50.0, 5.0, size=(ROWS, len(COLUMNS)))


def write(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    path = folder / ARTIFACT
    path.parent.mkdir(exist_ok=True)
    header = ",".join([*COLUMNS, LABEL])
    rows = np.column_stack([x, y])
    np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.17g")


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("oneproj_paper.data.power_tables.COUNTS", (180, 20))
    write(folder, WEATHER, LABELS)
    return folder


def samples(splits: Splits) -> tuple[Sample, Sample, Sample]:
    return splits.train, splits.validation, splits.test


@pytest.mark.usefixtures("small")
def test_features_are_products_of_standardised_variables_standardised() -> None:
    y = torch.tensor(LABELS).long()
    parts = stratified_split(y, torch.Generator().manual_seed(4))

    def standardised(table: np.ndarray) -> np.ndarray:
        train = table[parts.train.numpy()]
        return (table - train.mean(0)) / train.std(0)

    weather = standardised(WEATHER)
    pairs = combinations_with_replacement(range(6), 2)
    products = [weather[:, a] * weather[:, b] for a, b in pairs]
    features = standardised(np.column_stack([weather, *products]))
    splits = load(seed=4, dtype=torch.float64)
    assert len(splits.names) == features.shape[1] == 27
    assert splits.names[5:8] == ("ALLSKY_SFC_SW_DWN", "T2M^2", "T2M WS10M")
    for sample, part in zip(samples(splits), parts, strict=True):
        np.testing.assert_allclose(sample.x, features[part.numpy()], rtol=1e-9)
        assert torch.equal(sample.y, y[part])


def test_test_rows_do_not_touch_training_features(small: Path) -> None:
    before = load(seed=2)
    y = torch.tensor(LABELS).long()
    rows = stratified_split(y, torch.Generator().manual_seed(2)).test.numpy()
    changed = WEATHER.copy()
    changed[rows] *= 2.0
    write(small, changed, LABELS)
    after = load(seed=2)
    assert torch.equal(before.train.x, after.train.x)
    assert torch.equal(before.validation.x, after.validation.x)
    assert not torch.equal(before.test.x, after.test.x)


@pytest.mark.usefixtures("small")
def test_a_seed_fixes_every_bit() -> None:
    first, again, other = (load(seed=s).train.x for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_truncated_file_is_refused(small: Path) -> None:
    write(small, WEATHER[:-1], LABELS[:-1])
    with pytest.raises(InvalidDataError, match="holds 199 rows"):
        load()


@pytest.mark.parametrize("value", [np.nan, np.inf, -999.0])
def test_a_value_that_is_none_is_refused(small: Path, value: float) -> None:
    weather = WEATHER.copy()
    weather[7, 2] = value
    write(small, weather, LABELS)
    with pytest.raises(InvalidDataError, match="a number in every place, and no -999"):
        load(0)


@pytest.mark.parametrize(
    "noted", ["[1]", "{}", '{"places": 3, "years": "xx", "rain": null}', "{"]
)
def test_choices_that_were_changed_are_not_told(
    small: Path, noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj_paper.data.nasa_power.ARTIFACT", "none.csv")
    prepared = (small / ARTIFACT).rename(small / PREPARED)
    prepared.with_name(f"{prepared.name}.json").write_text(noted)
    assert "choices that were not noted" in load(0).note


def test_too_few_rows_are_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj_paper.data.power_tables.COUNTS", (9, 1))
    write(folder, WEATHER[:10], LABELS[:10])
    with pytest.raises(InvalidDataError, match=r"\(5, 1\), \(2, 0\).*each needs both"):
        load(0)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(DataNotFoundError, match=str(folder)):
        load()


@pytest.mark.usefixtures("real_data")
def test_the_real_counts_are_those_of_the_paper() -> None:
    splits = load(seed=0)
    parts = samples(splits)
    assert [len(part) for part in parts] == [29_581, 9_860, 9_861]
    counts = [part.counts for part in parts]
    assert tuple(map(sum, zip(*counts, strict=True))) == (47_073, 2_229)
    x = splits.train.x.double()
    torch.testing.assert_close(x.std(0), torch.ones(27).double(), atol=1e-3, rtol=0)
