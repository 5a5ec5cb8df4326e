"""Give Me Some Credit: does a young borrower default within two years?

The paper's sample is the rows with ``1 <= age <= 36``: exactly its 23,864, of which
2,628 default. Its 11 variables are not named; ten columns and an indicator of a
missing income is the natural reading, since 3,415 of the rows miss it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from oneproj_paper.data.credit_source import (
    COLUMNS,
    FILE,
    INCOME,
    NAME,
    prepare_credit,
    read_credit,
)
from oneproj_paper.data.find import find
from oneproj_paper.data.preprocess import fit_on_train
from oneproj_paper.data.samples import Splits
from oneproj_paper.data.splits import stratified_split

YOUNGEST, OLDEST = 1, 36

NOTE = (
    "Kaggle's Give Me Some Credit, 1 <= age <= 36: the paper's counts exactly. Chosen "
    "here, for the paper does not say: the eleventh variable is whether the income is "
    "missing; missing values become the median of the training part; the indicator is "
    "standardised and not transformed."
)


def credit_abstention(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Splits:
    """The credit-default data of appendix D.2; the seed decides the stratified split.

    Medians, Yeo-Johnson exponents, means and scales are those of the training part.
    A missing file is downloaded (about 10 MB) unless ONEPROJ_OFFLINE is set.

    Raises:
        DataNotFoundError: The file is in neither place and could not be downloaded.
        InvalidDataError: The file is not the one with 150,000 rows.
    """
    table = read_credit(find(FILE, data=NAME, download=prepare_credit))
    age = table[:, 1 + COLUMNS.index("age")]
    table = table[(age >= YOUNGEST) & (age <= OLDEST)]
    x, y = table[:, 1:], torch.tensor(table[:, 0]).long()
    missing = np.isnan(x[:, [COLUMNS.index(INCOME)]])
    parts = stratified_split(y, torch.Generator().manual_seed(seed))
    train, validation, test = fit_on_train(
        _transformer(), np.hstack([x, missing]), y, parts, dtype
    )
    return Splits(
        train=train,
        validation=validation,
        test=test,
        names=(*COLUMNS, f"{INCOME} is missing"),
        stand_in=False,
        note=NOTE,
    )


def _transformer() -> Any:  # noqa: ANN401 - scikit-learn has no types
    """Impute and Yeo-Johnson the columns, pass the indicator on; standardise all."""
    from sklearn import compose, impute, pipeline, preprocessing

    columns = pipeline.make_pipeline(
        impute.SimpleImputer(strategy="median"),
        preprocessing.PowerTransformer("yeo-johnson", standardize=False),
    )
    return pipeline.make_pipeline(
        compose.make_column_transformer(
            (columns, list(range(len(COLUMNS)))), remainder="passthrough"
        ),
        preprocessing.StandardScaler(),
    )
