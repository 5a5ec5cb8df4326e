"""Samples: counts, rows, classes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from oneproj_paper.data.samples import Sample

SAMPLE = Sample(torch.arange(8.0).reshape(4, 2), torch.tensor([1, 0, 1, 1]))


def test_counts_name_class_0_first() -> None:
    assert len(SAMPLE) == 4
    assert SAMPLE.counts == (1, 3)


def test_the_examples_of_a_class_keep_their_order() -> None:
    assert SAMPLE.of_class(1).tolist() == [[0.0, 1.0], [4.0, 5.0], [6.0, 7.0]]


def test_rows_are_taken_with_their_labels() -> None:
    taken = SAMPLE.take(torch.tensor([2, 1]))
    assert taken.x.tolist() == [[4.0, 5.0], [2.0, 3.0]]
    assert taken.y.tolist() == [1, 0]


def test_a_sample_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SAMPLE.x = SAMPLE.x  # type: ignore[misc]
