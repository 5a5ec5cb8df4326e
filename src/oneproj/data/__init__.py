"""The data sets of the paper's experiments, split and preprocessed.

Each loader takes a seed and a dtype and returns frozen samples: the same seed gives
the same bits. What the paper leaves open is in the ``note`` of what a loader returns.

Example:
    >>> from oneproj import data
    >>> splits = data.gaussian_abstention(seed=0)
    >>> splits.train.counts, splits.stand_in
    ((600, 600), False)
"""

from __future__ import annotations

from oneproj.data.climsim import climsim_abstention, climsim_transfer
from oneproj.data.credit import credit_abstention
from oneproj.data.gaussian import gaussian_abstention, gaussian_transfer
from oneproj.data.nasa_power import nasa_abstention
from oneproj.data.samples import Sample, Splits, TransferSplits
from oneproj.errors import DataNotFoundError, InvalidDataError

__all__ = [
    "DataNotFoundError",
    "InvalidDataError",
    "Sample",
    "Splits",
    "TransferSplits",
    "climsim_abstention",
    "climsim_transfer",
    "credit_abstention",
    "gaussian_abstention",
    "gaussian_transfer",
    "nasa_abstention",
]
