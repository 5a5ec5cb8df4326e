"""Credit: on a small file in the same format, and on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.preprocessing import PowerTransformer

from oneproj_paper.data import credit_abstention as load
from oneproj_paper.data.credit_source import COLUMNS, FILE, INCOME, LABEL
from oneproj_paper.data.samples import Sample, Splits
from oneproj_paper.data.splits import stratified_split
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

ROWS = 400
AGE, MONEY = COLUMNS.index("age"), COLUMNS.index(INCOME)


def rows() -> Iterator[list[float]]:
    """Label and ten columns; a third is too old, every eighth has no income."""
    rng = np.random.default_rng(0)
    for k in range(ROWS):
        label = float(k % 10 == 0)
        columns = rng.gamma(2.0, 1.0 + label, size=len(COLUMNS))
        columns[AGE] = (21 + k % 16, 30, 60)[k % 3]
        columns[MONEY] = np.nan if k % 8 == 0 else 1e3 * columns[MONEY]
        yield [label, *columns]


def write(folder: Path, table: list[list[float]]) -> None:
    path = folder / FILE
    path.parent.mkdir(exist_ok=True)
    lines = [",".join(["", LABEL, *COLUMNS])]
    for k, row in enumerate(table):
        cells = ["NA" if np.isnan(v) else repr(float(v)) for v in row]
        lines.append(",".join([str(k + 1), *cells]))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("oneproj_paper.data.credit_source.COUNTS", (360, 40))
    write(folder, list(rows()))
    return folder


def kept() -> np.ndarray:
    return np.array([row for row in rows() if 1 <= row[1 + AGE] <= 36])


def samples(splits: Splits) -> tuple[Sample, Sample, Sample]:
    return splits.train, splits.validation, splits.test


@pytest.mark.usefixtures("small")
def test_the_young_rows_are_kept_and_split() -> None:
    splits = load(seed=3)
    parts = samples(splits)
    n, ones = len(kept()), int(kept()[:, 0].sum())
    assert [len(part) for part in parts[:2]] == [n * 6 // 10, n * 2 // 10]
    assert sum(len(part) for part in parts) == n
    assert sum(part.counts[1] for part in parts) == ones
    assert len(splits.names) == splits.train.x.shape[1] == 11
    assert not splits.stand_in


@pytest.mark.usefixtures("small")
def test_features_are_the_median_yeo_johnson_and_scale_of_the_training_part() -> None:
    table = kept()
    y = torch.tensor(table[:, 0]).long()
    parts = stratified_split(y, torch.Generator().manual_seed(1))
    x, missing = table[:, 1:].copy(), np.isnan(table[:, [1 + MONEY]])
    train = parts.train.numpy()
    medians = np.nanmedian(x[train], axis=0)
    x = np.where(np.isnan(x), medians, x)
    transform = PowerTransformer(standardize=False).fit(x[train])
    features = np.hstack([transform.transform(x), missing])
    features = (features - features[train].mean(0)) / features[train].std(0)
    splits = load(seed=1, dtype=torch.float64)
    for sample, part in zip(samples(splits), parts, strict=True):
        np.testing.assert_allclose(sample.x, features[part.numpy()], rtol=1e-9)
        assert torch.equal(sample.y, y[part])


def test_test_rows_do_not_touch_training_features(small: Path) -> None:
    before = load(seed=2)
    kept_rows = [k for k, row in enumerate(rows()) if 1 <= row[1 + AGE] <= 36]
    y = torch.tensor(kept()[:, 0]).long()
    parts = stratified_split(y, torch.Generator().manual_seed(2))
    table = list(rows())
    for k in parts.test.tolist():
        row = table[kept_rows[k]]
        table[kept_rows[k]] = [row[0], *(7.0 + 3.0 * v for v in row[1:])]
        table[kept_rows[k]][1 + AGE] = row[1 + AGE]  # it decides who is in the sample
    write(small, table)
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
    write(small, list(rows())[:-1])
    with pytest.raises(InvalidDataError, match="holds 399 rows"):
        load()


@pytest.mark.parametrize(
    ("column", "value"), [(AGE, np.nan), (AGE, np.inf), (MONEY, np.inf)]
)
def test_a_value_that_the_file_does_not_have_is_refused(
    small: Path, column: int, value: float
) -> None:
    table = list(rows())
    table[5][1 + column] = value
    write(small, table)
    with pytest.raises(InvalidDataError, match=f"numbers, in {COLUMNS[column]}"):
        load(0)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(DataNotFoundError, match=str(folder)):
        load()


# --- the real file ------------------------------------------------------------


@pytest.mark.usefixtures("real_data")
def test_the_real_counts_are_those_of_the_paper() -> None:
    splits = load(seed=0)
    parts = samples(splits)
    assert [len(part) for part in parts] == [14_318, 4_772, 4_774]
    counts = [part.counts for part in parts]
    assert tuple(map(sum, zip(*counts, strict=True))) == (21_236, 2_628)
    x = splits.train.x.double()
    assert bool(torch.isfinite(x).all())
    torch.testing.assert_close(x.mean(0), torch.zeros(11).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones(11).double(), atol=1e-3, rtol=0)
    missing = sum(int((part.x[:, -1] > 0).sum()) for part in parts)
    assert missing == 3_415
