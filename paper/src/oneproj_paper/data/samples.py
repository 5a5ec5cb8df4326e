"""Labelled samples and the splits that the loaders return. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """Examples and their classes: ``x`` of shape (n, d), ``y`` of 0 and 1.

    Example:
        >>> import torch
        >>> sample = Sample(torch.eye(3), torch.tensor([0, 1, 1]))
        >>> len(sample), sample.counts, tuple(sample.of_class(1).shape)
        (3, (1, 2), (2, 3))
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of examples of class 0 and of class 1."""
        ones = int(self.y.sum())
        return len(self) - ones, ones

    def take(self, rows: Tensor) -> Sample:
        """The examples of these rows, in that order."""
        return Sample(self.x[rows], self.y[rows])

    def of_class(self, label: int) -> Tensor:
        """The examples of one class, in their order."""
        return self.x[self.y == label]


@dataclass(frozen=True, eq=False)
class Splits:
    """A data set in three parts that share no example.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> splits = gaussian_abstention(seed=0)
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (1200, 400, 400)
    """

    train: Sample
    validation: Sample
    test: Sample
    names: tuple[str, ...]
    """What each column of x is."""
    stand_in: bool
    """Whether another sample takes the place of the paper's."""
    note: str
    """Where the data comes from, and every choice that the paper leaves open."""


@dataclass(frozen=True, eq=False)
class TransferSplits(Splits):
    """The target's three parts, and the source sample whose risk is bounded.

    Example:
        >>> from oneproj_paper.data import gaussian_transfer
        >>> splits = gaussian_transfer(seed=0)
        >>> splits.source.counts, splits.train.counts, splits.test.counts
        ((1000, 1000), (40, 40), (500, 500))
    """

    source: Sample
