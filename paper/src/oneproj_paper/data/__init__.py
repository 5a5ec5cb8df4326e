"""The data sets of the paper's experiments, split and preprocessed.

Each loader takes a seed and a dtype and returns frozen samples: the same seed gives
the same bits. What the paper leaves open is in the ``note`` of what a loader returns.

Files are looked for in the folder that ONEPROJ_DATA names, then in the user's cache,
which ONEPROJ_CACHE moves. What is in neither is downloaded: the credit data (10 MB) by
itself, what is larger or needs a choice by ``prepare_nasa_power`` and
``prepare_climsim``, or ``oneproj-paper data prepare``. ONEPROJ_OFFLINE=1 forbids every
download.

Example:
    >>> from oneproj_paper import data
    >>> splits = data.gaussian_abstention(seed=0)
    >>> splits.train.counts, splits.stand_in
    ((600, 600), False)
"""

from __future__ import annotations

from oneproj_paper.data.checks import Finding, verify
from oneproj_paper.data.climsim import climsim_abstention, climsim_transfer
from oneproj_paper.data.climsim_source import prepare_climsim
from oneproj_paper.data.credit import credit_abstention
from oneproj_paper.data.credit_source import prepare_credit
from oneproj_paper.data.entries import Availability, Entry, catalogue
from oneproj_paper.data.gaussian import gaussian_abstention, gaussian_transfer
from oneproj_paper.data.nasa_power import nasa_abstention
from oneproj_paper.data.power_source import prepare_nasa_power
from oneproj_paper.data.samples import Sample, Splits, TransferSplits
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

__all__ = [
    "Availability",
    "DataNotFoundError",
    "Entry",
    "Finding",
    "InvalidDataError",
    "Sample",
    "Splits",
    "TransferSplits",
    "catalogue",
    "climsim_abstention",
    "climsim_transfer",
    "credit_abstention",
    "gaussian_abstention",
    "gaussian_transfer",
    "nasa_abstention",
    "prepare_climsim",
    "prepare_credit",
    "prepare_nasa_power",
    "verify",
]
