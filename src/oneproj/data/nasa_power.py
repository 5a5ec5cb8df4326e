"""NASA POWER: does it rain much on a day with this weather?

The paper's artifact: six daily variables and a label, for 9 grid points and 15 years,
without dates. Neighbouring rows are strongly correlated, so the random split that the
paper uses (a chronological one is impossible) makes the test part look easy.
"""

from __future__ import annotations

import torch

from oneproj.data.extras import require
from oneproj.data.find import find
from oneproj.data.preprocess import fit_on_train
from oneproj.data.samples import Splits
from oneproj.data.splits import stratified_split
from oneproj.data.tables import check_counts, read_columns

FILE = "nasa_power/nasa_15years_target_A.csv"
LABEL = "rain_label"
COLUMNS = ("T2M", "WS10M", "RH2M", "PS", "ALLSKY_SFC_LW_DWN", "ALLSKY_SFC_SW_DWN")
COUNTS = (47_073, 2_229)
"""Rows of each class, those of the paper's table."""

NOTE = (
    "NASA POWER daily, the paper's own file and counts. No dates: the split is random "
    "among correlated rows, so test figures flatter, as in the paper. Chosen here, for "
    "the paper does not say: the 27 features are formed of the variables in their own "
    "units and then standardised. Standardising before comes out further from the "
    "paper's ambiguity with the paper's settings."
)


def nasa_abstention(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Splits:
    """The rainfall data of appendix D.2; the seed decides the stratified split.

    27 features: six variables, their squares and their products, standardised with
    the means and scales of the training part.

    Raises:
        DataNotFoundError: The file is in neither place; see ``oneproj.data.find``.
        InvalidDataError: The file is not the paper's.
    """
    path = find(FILE)
    table = read_columns(path, [LABEL, *COLUMNS])
    check_counts(path, table[:, 0], COUNTS)
    y = torch.tensor(table[:, 0]).long()
    preprocessing = require("sklearn.preprocessing")
    products = preprocessing.PolynomialFeatures(2, include_bias=False)
    transformer = require("sklearn.pipeline").make_pipeline(
        products, preprocessing.StandardScaler()
    )
    parts = stratified_split(y, torch.Generator().manual_seed(seed))
    train, validation, test = fit_on_train(transformer, table[:, 1:], y, parts, dtype)
    return Splits(
        train=train,
        validation=validation,
        test=test,
        names=tuple(products.get_feature_names_out(COLUMNS)),
        stand_in=False,
        note=NOTE,
    )
