"""ClimSim: does it rain heavily in this column of a climate model?

The paper's sample (daily, 8 years, locations 104 to 111) is not distributed. What is
here is a stand-in, and says so: 127 time steps of the same low-resolution set, the
tropical band ``|latitude| <= 20``, rows with rain. Heavy rain is a rate above the 95th
percentile of the training period, fixed before the other parts are labelled, and the
split is chronological: both as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneproj.data.climsim_rows import Mask, Rows, read_grid, read_rows
from oneproj.data.extras import require
from oneproj.data.find import find
from oneproj.data.preprocess import fit_on_train
from oneproj.data.samples import Splits, TransferSplits
from oneproj.data.splits import Parts, chronological_split
from oneproj.data.tables import Array
from oneproj.errors import InvalidDataError

SAMPLE_FILE = "climsim/climsim_lowres_rows.npz"
GRID_FILE = "climsim/ClimSim_low-res_grid-info.nc"
ROWS = 48_768
"""Of the sample: 127 time steps of 384 columns."""
TROPICS = 20.0
"""Degrees of latitude on either side of the equator."""
HEAVY = 0.95
"""The quantile of the training period above which rain is heavy."""
SOURCE_EAST = 180.0
"""The transfer source is the band from 0 to 180 degrees east, the target the rest."""
SOURCE_TRAIN, TARGET_TRAIN, VALIDATION, TEST = 190, 100, 30, 35
"""Rows per class: what the stand-in allows, where the paper has 950, 100, 200, 400."""

ABSTENTION_NOTE = (
    "Stand-in: the paper's 11,373 daily rows of locations 104 to 111 are not "
    "distributed. Tropical rows with rain of 127 time steps of the same set take their "
    "place. Chosen here, for the paper does not say: the squares are those of the "
    "variables in their own units, and all 248 features are then standardised."
)
TRANSFER_NOTE = (
    "Stand-in: the paper's locations are not distributed. The eastern half of the "
    "tropical band is the source, the western half the target, with fewer rows per "
    "class than the paper: 190 source and 100 target training rows, 30 for validation, "
    "35 for the test. Variables are standardised."
)


def climsim_abstention(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Splits:
    """Heavy rain in the tropics, a stand-in for appendix D.2; the seed has no effect.

    248 features: 124 variables and their squares, standardised on the training part.

    Raises:
        DataNotFoundError: A file is in neither place; see ``oneproj.data.find``.
        InvalidDataError: A file is not the one expected.
    """
    del seed  # the split is chronological: there is nothing to draw
    rows, _ = _tropics()
    parts, y = _label(rows)
    train, validation, test = fit_on_train(_squares_too(), rows.x, y, parts, dtype)
    return Splits(
        train=train,
        validation=validation,
        test=test,
        names=(*rows.names, *(f"{name}^2" for name in rows.names)),
        stand_in=True,
        note=ABSTENTION_NOTE,
    )


def climsim_transfer(
    seed: int = 0, *, dtype: torch.dtype = torch.float32
) -> TransferSplits:
    """Heavy rain in two regions, a stand-in for appendix D.1; the seed draws the rows.

    Every part is balanced by design, as in the paper. Means and scales are those of
    the source and target training rows together.

    Raises:
        DataNotFoundError: A file is in neither place; see ``oneproj.data.find``.
        InvalidDataError: A file is not the one expected.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, east = _tropics()
    parts, y = _label(rows)
    target = torch.tensor(~east)

    def draw(part: Tensor, region: Tensor, count: int) -> Tensor:
        return _balanced(part[region[part]], y, count, generator)

    source_rows = draw(parts.train, ~target, SOURCE_TRAIN)
    train_rows = draw(parts.train, target, TARGET_TRAIN)
    held_out = (
        draw(parts.validation, target, VALIDATION),
        draw(parts.test, target, TEST),
    )
    union = Parts(torch.cat([source_rows, train_rows]), *held_out)
    scaler = require("sklearn.preprocessing").StandardScaler()
    both, validation, test = fit_on_train(scaler, rows.x, y, union, dtype)
    return TransferSplits(
        source=both.take(torch.arange(len(source_rows))),
        train=both.take(torch.arange(len(source_rows), len(both))),
        validation=validation,
        test=test,
        names=rows.names,
        stand_in=True,
        note=TRANSFER_NOTE,
    )


def _tropics() -> tuple[Rows, Mask]:
    """The rows with rain near the equator, and which of them lie in the east."""
    path = find(SAMPLE_FILE)
    rows = read_rows(path)
    if len(rows.rain) != ROWS:
        message = (
            f"{path} holds {len(rows.rain):,} rows, expected are {ROWS:,}. It may be "
            "truncated or another sample: fetch it again."
        )
        raise InvalidDataError(message)
    lat, lon = read_grid(find(GRID_FILE))
    near = np.abs(lat[rows.location]) <= TROPICS
    rows = rows.where(near & (rows.rain != 0))
    return rows, lon[rows.location] < SOURCE_EAST


def _label(rows: Rows) -> tuple[Parts, Tensor]:
    """The chronological parts, and 1 where it rains more than the training quantile."""
    parts = chronological_split(torch.tensor(rows.time))
    threshold = np.quantile(rows.rain[parts.train.numpy()], HEAVY)
    return parts, torch.tensor(rows.rain > threshold).long()


def _balanced(
    rows: Tensor, y: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """As many rows of each class, drawn without replacement."""
    drawn = []
    for label in (0, 1):
        members = rows[y[rows] == label]
        if len(members) < count:
            message = (
                f"The ClimSim sample has {len(members)} rows of class {label} where "
                f"{count} are needed. It may be truncated: fetch it again."
            )
            raise InvalidDataError(message)
        shuffle = torch.randperm(len(members), generator=generator)
        drawn.append(members[shuffle[:count]])
    return torch.cat(drawn)


def _squares_too() -> Any:  # noqa: ANN401 - scikit-learn has no types
    preprocessing = require("sklearn.preprocessing")
    return require("sklearn.pipeline").make_pipeline(
        preprocessing.FunctionTransformer(_with_squares),
        preprocessing.StandardScaler(),
    )


def _with_squares(x: Array) -> Array:
    return np.hstack([x, np.square(x)])
