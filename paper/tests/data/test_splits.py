"""Splits: sizes, proportions, order, disjointness."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oneproj_paper.data.splits import Parts, chronological_split, stratified_split

examples = settings(derandomize=True, deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labels(zeros: int, ones: int) -> torch.Tensor:
    shuffle = torch.randperm(zeros + ones, generator=generator(3))
    return torch.cat([torch.zeros(zeros), torch.ones(ones)]).long()[shuffle]


def assert_partition(parts: Parts, n: int) -> None:
    assert torch.cat(parts).sort().values.tolist() == list(range(n))
    assert all(torch.equal(rows, rows.sort().values) for rows in parts)


@examples
@given(zeros=st.integers(1, 300), ones=st.integers(1, 300), seed=st.integers(0, 99))
def test_stratified_parts_share_no_row_and_keep_the_proportions(
    zeros: int, ones: int, seed: int
) -> None:
    y, n = labels(zeros, ones), zeros + ones
    parts = stratified_split(y, generator(seed))
    assert_partition(parts, n)
    assert len(parts.train) == int(0.6 * n + 1e-9)
    assert len(parts.validation) == int(0.2 * n + 1e-9)
    for rows, size in zip(parts, map(len, parts), strict=True):
        # Train and validation are within 1 of their share, so the rest is within 2.
        assert abs(int(y[rows].sum()) - size * ones / n) < 2


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ((1_000, 1_000), (1_200, 400, 400)),
        ((47_073, 2_229), (29_581, 9_860, 9_861)),
        ((21_236, 2_628), (14_318, 4_772, 4_774)),
    ],
    ids=["gaussian", "nasa", "credit"],
)
def test_stratified_sizes_are_those_of_the_paper(
    counts: tuple[int, int], sizes: tuple[int, int, int]
) -> None:
    parts = stratified_split(labels(*counts), generator())
    assert tuple(map(len, parts)) == sizes


def test_the_seed_decides_the_stratified_split() -> None:
    y = labels(80, 20)
    first, again = (stratified_split(y, generator(1)) for _ in range(2))
    other = stratified_split(y, generator(2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first.train, other.train)


@examples
@given(times=st.lists(st.integers(0, 30), min_size=5, max_size=200))
def test_chronological_parts_follow_each_other(times: list[int]) -> None:
    time = torch.tensor(times)
    parts = chronological_split(time)
    assert_partition(parts, len(times))
    seen = [set(time[rows].tolist()) for rows in parts]
    for earlier, later in ((0, 1), (1, 2), (0, 2)):
        if seen[earlier] and seen[later]:
            assert max(seen[earlier]) < min(seen[later])


def test_chronological_sizes_without_ties_are_60_20_20() -> None:
    time = torch.randperm(1_000, generator=generator())
    assert tuple(map(len, chronological_split(time))) == (600, 200, 200)
