"""The synthetic data: counts, moments, label noise, determinism."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oneproj_paper.data import gaussian, gaussian_abstention, gaussian_transfer
from oneproj_paper.data.samples import Sample, Splits, TransferSplits

LOADERS = [gaussian_transfer, gaussian_abstention]
STANDARD_ERRORS = 5.0


def samples(splits: Splits) -> list[Sample]:
    own = [splits.train, splits.validation, splits.test]
    return [*own, splits.source] if isinstance(splits, TransferSplits) else own


def assert_gaussian(x: Tensor, mean: float) -> None:
    """Mean and covariance are within five standard errors of (mean, I)."""
    error = STANDARD_ERRORS / len(x) ** 0.5
    assert (x.mean(dim=0) - mean).abs().max() < error
    identity = torch.eye(x.shape[1], dtype=x.dtype)
    assert (x.T.cov() - identity).abs().max() < 2**0.5 * error


def test_transfer_counts_are_those_of_the_paper() -> None:
    splits = gaussian_transfer()
    assert splits.train.counts == (40, 40)
    assert splits.source.counts == (1_000, 1_000)
    assert splits.validation.counts == splits.test.counts == (500, 500)
    assert {sample.x.shape[1] for sample in samples(splits)} == {10}


def test_transfer_domains_share_class_1_only() -> None:
    splits = gaussian_transfer(seed=4, dtype=torch.float64)
    assert_gaussian(splits.source.of_class(0), -2.0)
    assert_gaussian(splits.source.of_class(1), 1.0)
    for sample in (splits.validation, splits.test):
        assert_gaussian(sample.of_class(0), 0.0)
        assert_gaussian(sample.of_class(1), 1.0)


def test_abstention_counts_are_those_of_the_paper() -> None:
    splits = gaussian_abstention()
    sizes = [len(sample) for sample in samples(splits)]
    assert sizes == [1_200, 400, 400]
    counts = [sample.counts for sample in samples(splits)]
    assert tuple(map(sum, zip(*counts, strict=True))) == (1_000, 1_000)
    assert splits.train.x.shape[1] == len(splits.names) == 8


def test_abstention_classes_are_two_apart_along_the_diagonal() -> None:
    parts = samples(gaussian_abstention(seed=2, dtype=torch.float64))
    x = torch.cat([sample.x for sample in parts])
    y = torch.cat([sample.y for sample in parts])
    direction = torch.full((8,), 8**-0.5, dtype=torch.float64)
    along = x @ direction
    # The true means are 2 apart; 2 % of each class come from the other one.
    gap = along[y == 1].mean() - along[y == 0].mean()
    assert abs(float(gap) - 2.0 * 0.96) < STANDARD_ERRORS * (2 / 1_000) ** 0.5
    across = x - along[:, None] * direction
    assert across.mean(dim=0).abs().max() < STANDARD_ERRORS / 2_000**0.5


def test_exactly_two_percent_of_each_class_are_relabelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def labels() -> dict[tuple[float, ...], int]:
        parts = samples(gaussian_abstention(seed=3))
        return {
            tuple(x): y
            for sample in parts
            for x, y in zip(sample.x.tolist(), sample.y.tolist(), strict=True)
        }

    given = labels()
    monkeypatch.setattr(gaussian, "FLIPPED", 0.0)
    changes = [(y, given[x]) for x, y in labels().items() if given[x] != y]
    assert sorted(changes) == [(0, 1)] * 20 + [(1, 0)] * 20


@pytest.mark.parametrize("load", LOADERS)
def test_a_seed_fixes_every_bit(load: Callable[..., Splits]) -> None:
    first, again, other = (samples(load(seed)) for seed in (5, 5, 6))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
        assert not torch.equal(a.x, c.x)


@pytest.mark.parametrize("load", LOADERS)
def test_a_seed_means_the_same_sample_in_every_dtype(
    load: Callable[..., Splits],
) -> None:
    double = samples(load(1, dtype=torch.float64))
    single = samples(load(1, dtype=torch.float32))
    for a, b in zip(double, single, strict=True):
        assert b.x.dtype == torch.float32
        assert torch.equal(a.x.float(), b.x)
        assert torch.equal(a.y, b.y)


@pytest.mark.parametrize("load", LOADERS)
def test_parts_share_no_example(load: Callable[..., Splits]) -> None:
    rows = torch.cat([sample.x for sample in samples(load())])
    assert len(rows.unique(dim=0)) == len(rows)


@pytest.mark.parametrize("load", LOADERS)
def test_the_global_generator_is_left_alone(load: Callable[..., Splits]) -> None:
    before = torch.get_rng_state()
    load()
    assert torch.equal(torch.get_rng_state(), before)
