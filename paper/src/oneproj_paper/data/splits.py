"""How rows are divided into training, validation and test parts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TENTHS_TRAIN, TENTHS_VALIDATION = 6, 2
"""60/20/20, what the paper uses for every data set that it divides."""


class Parts(NamedTuple):
    """Row numbers of the three parts: disjoint, ascending, together all rows."""

    train: Tensor
    validation: Tensor
    test: Tensor


def stratified_split(y: Tensor, generator: torch.Generator) -> Parts:
    """A random 60/20/20 split with each class divided in the same proportions.

    The training and validation parts have ``floor(0.6 n)`` and ``floor(0.2 n)`` rows:
    that, and no other rounding that was tried, gives all of the paper's sizes. Within
    a part each class gets its share, rounded by largest remainder.

    Example:
        >>> y = torch.tensor([0] * 90 + [1] * 10)
        >>> parts = stratified_split(y, torch.Generator().manual_seed(0))
        >>> [(len(rows), int(y[rows].sum())) for rows in parts]
        [(60, 6), (20, 2), (20, 2)]
    """
    n = len(y)
    members = [torch.nonzero(y == label).flatten() for label in (0, 1)]
    sizes = [len(rows) for rows in members]
    train = _shares(n * TENTHS_TRAIN // 10, sizes)
    validation = _shares(n * TENTHS_VALIDATION // 10, sizes)
    chosen: list[tuple[Tensor, ...]] = []
    for rows, a, b in zip(members, train, validation, strict=True):
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        chosen.append((shuffled[:a], shuffled[a : a + b], shuffled[a + b :]))
    parts = [torch.cat(pieces).sort().values for pieces in zip(*chosen, strict=True)]
    return Parts(*parts)


def chronological_split(time: Tensor) -> Parts:
    """A 60/20/20 split in which every part is later than the one before.

    Rows of one time step stay together, so a step belongs to the training part if
    less than 60 % of all rows are earlier, and to the validation part below 80 %.

    Example:
        >>> parts = chronological_split(torch.tensor([7, 7, 1, 2, 3, 4, 4, 5, 6, 6]))
        >>> [rows.tolist() for rows in parts]
        [[2, 3, 4, 5, 6, 7], [8, 9], [0, 1]]
    """
    n = len(time)
    earlier = torch.searchsorted(time.sort().values, time)
    train = 10 * earlier < TENTHS_TRAIN * n
    test = 10 * earlier >= (TENTHS_TRAIN + TENTHS_VALIDATION) * n
    masks = (train, ~train & ~test, test)
    return Parts(*(torch.nonzero(mask).flatten() for mask in masks))


def _shares(total: int, sizes: list[int]) -> list[int]:
    """Divide a total in proportion to sizes, rounding by largest remainder."""
    n = sum(sizes)
    quotas = [divmod(total * size, n) for size in sizes]
    shares = [whole for whole, _ in quotas]
    by_remainder = sorted(range(len(sizes)), key=lambda k: -quotas[k][1])
    for k in by_remainder[: total - sum(shares)]:
        shares[k] += 1
    return shares
