"""ClimSim: does it rain heavily in this column of a climate model?

The paper's sample (daily, 8 years, locations 104 to 111) is not distributed. Where
``oneproj-paper data prepare climsim`` has rebuilt it from the hub's files, it is used;
elsewhere a small sample of the same set takes its place. What is not the paper's own
says so in ``stand_in`` and ``note``. Labels and splits are in ``climsim_labels``,
``climsim_groups`` and ``climsim_tropics``; here they become features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data import climsim_groups, climsim_tropics
from oneproj_paper.data.climsim_labels import Labelled, Regions
from oneproj_paper.data.climsim_source import TABLE
from oneproj_paper.data.find import locate
from oneproj_paper.data.preprocess import fit_on_train
from oneproj_paper.data.samples import Splits, TransferSplits
from oneproj_paper.data.splits import Parts
from oneproj_paper.errors import InvalidDataError


def climsim_abstention(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Splits:
    """Heavy rain, as in appendix D.2 or a stand-in for it; the seed has no effect.

    248 features: 124 variables and their squares, standardised on the training part.
    Nothing is downloaded here, since that is gigabytes: ``oneproj-paper data prepare
    climsim`` does it.

    Raises:
        DataNotFoundError: There is neither the table nor the stand-in's files.
        InvalidDataError: A file is not the one expected.
    """
    del seed  # the split is chronological: there is nothing to draw
    sample, stand_in, note = _abstention_sample()
    rows = sample.rows
    train, validation, test = fit_on_train(
        _squares_too(), rows.x, sample.y, sample.parts, dtype
    )
    return Splits(
        train=train,
        validation=validation,
        test=test,
        names=(*rows.names, *(f"{name}^2" for name in rows.names)),
        stand_in=stand_in,
        note=note,
    )


def climsim_transfer(
    seed: int = 0, *, dtype: torch.dtype = torch.float32
) -> TransferSplits:
    """Heavy rain in two regions, for appendix D.1; the seed draws the rows.

    Every part is balanced by design, as in the paper. Means and scales are those of
    the source and target training rows together. Nothing is downloaded here, as for
    ``climsim_abstention``.

    Raises:
        DataNotFoundError: There is neither the table nor the stand-in's files.
        InvalidDataError: A file is not the one expected, or has too few heavy rows.
    """
    generator = torch.Generator().manual_seed(seed)
    sample, note = _transfer_sample()
    parts, sizes, y = sample.parts, sample.sizes, sample.y
    source = torch.tensor(sample.source)

    def draw(part: Tensor, region: Tensor, count: int) -> Tensor:
        return _balanced(part[region[part]], y, count, generator)

    source_rows = draw(parts.train, source, sizes.source)
    train_rows = draw(parts.train, ~source, sizes.train)
    held_out = (
        draw(parts.validation, ~source, sizes.validation),
        draw(parts.test, ~source, sizes.test),
    )
    union = Parts(torch.cat([source_rows, train_rows]), *held_out)
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    both, validation, test = fit_on_train(scaler, sample.rows.x, y, union, dtype)
    return TransferSplits(
        source=both.take(torch.arange(len(source_rows))),
        train=both.take(torch.arange(len(source_rows), len(both))),
        validation=validation,
        test=test,
        names=sample.rows.names,
        stand_in=True,
        note=note,
    )


def _abstention_sample() -> tuple[Labelled, bool, str]:
    """The sample, whether it is a stand-in, and what to say about it."""
    table = locate(TABLE)
    if table is None:
        tropics = climsim_tropics.tropical_rain()
        return tropics, True, climsim_tropics.ABSTENTION_NOTE
    sample = climsim_groups.daily_rain(climsim_groups.read_groups(table))
    note = climsim_groups.abstention_note(sample)
    return sample, not climsim_groups.is_the_papers(sample), note


def _transfer_sample() -> tuple[Regions, str]:
    table = locate(TABLE)
    if table is None:
        return climsim_tropics.tropical_rain(), climsim_tropics.TRANSFER_NOTE
    rows = climsim_groups.read_groups(table)
    return climsim_groups.rain_of_groups(rows), climsim_groups.transfer_note(rows)


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
                f"{count} are needed. It may be truncated, or prepared from too short "
                "a time: run `oneproj-paper data prepare climsim --refresh`."
            )
            raise InvalidDataError(message)
        shuffle = torch.randperm(len(members), generator=generator)
        drawn.append(members[shuffle[:count]])
    return torch.cat(drawn)


def _squares_too() -> Any:  # noqa: ANN401 - scikit-learn has no types
    from sklearn import pipeline, preprocessing

    return pipeline.make_pipeline(
        preprocessing.FunctionTransformer(_with_squares),
        preprocessing.StandardScaler(),
    )


def _with_squares(x: Array) -> Array:
    return np.hstack([x, np.square(x)])
