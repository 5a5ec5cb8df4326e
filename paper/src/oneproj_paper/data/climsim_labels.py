"""ClimSim rows with labels: heavy rain, and which period a row belongs to.

Heavy is a rate above the 95th percentile of the training period, fixed before the
other periods are labelled, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oneproj.vectors.arithmetic import Mask
from oneproj_paper.data.climsim_rows import Rows
from oneproj_paper.data.splits import Parts

HEAVY = 0.95
"""The quantile of the training period above which rain is heavy."""


class Sizes(NamedTuple):
    """Rows per class of the transfer problem."""

    source: int
    train: int
    validation: int
    test: int


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows, their periods and their classes."""

    rows: Rows
    parts: Parts
    """Only rows that take part; the others are dry."""
    y: Tensor


@dataclass(frozen=True, eq=False)
class Regions(Labelled):
    """The same, in two regions."""

    source: Mask
    """True in the source region, false in the target region."""
    sizes: Sizes


def heavy(rows: Rows, parts: Parts) -> Tensor:
    """1 where it rains more than the quantile of the training rows, 0 elsewhere."""
    threshold = np.quantile(rows.rain[parts.train.numpy()], HEAVY)
    return torch.tensor(rows.rain > threshold).long()
