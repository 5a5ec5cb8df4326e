"""The two tables of daily weather: the paper's own, and one made from NASA POWER."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data.tables import check_counts, read_columns
from oneproj_paper.errors import InvalidDataError

NAME = "nasa_power"
ARTIFACT = "nasa_power/nasa_15years_target_A.csv"
"""The paper's own table."""
PREPARED = "nasa_power/power_daily.csv"
"""The table that ``prepare_nasa_power`` makes, with its choices beside it."""
LABEL = "rain_label"
COLUMNS = ("T2M", "WS10M", "RH2M", "PS", "ALLSKY_SFC_LW_DWN", "ALLSKY_SFC_SW_DWN")
COUNTS = (47_073, 2_229)
"""Rows of each class, those of the paper's table."""
MISSING = -999.0
"""What NASA POWER has in place of a value that it does not have."""


def read_artifact(path: Path) -> Array:
    """The label and the six variables of the paper's table.

    Raises:
        InvalidDataError: Its counts are not the paper's, or a value is missing.
    """
    table = read_columns(path, [LABEL, *COLUMNS])
    check_counts(path, table[:, 0], COUNTS)
    if _is_complete(table):
        return table
    message = (
        f"{path} should hold a number in every place, and no {MISSING:g}, which stands "
        "for a missing one. It may be damaged: fetch it again."
    )
    raise InvalidDataError(message)


def read_prepared(path: Path) -> Array:
    """The label and the six variables of a table made by ``prepare_nasa_power``.

    Raises:
        InvalidDataError: A value is missing, or there are not two classes.
    """
    table = read_columns(path, [LABEL, *COLUMNS])
    if _is_complete(table) and set(table[:, 0]) == {0.0, 1.0}:
        return table
    message = (
        f"{path} should hold numbers only and the labels 0 and 1. It may be damaged: "
        "run `oneproj-paper data prepare nasa_power --refresh`."
    )
    raise InvalidDataError(message)


def _is_complete(table: Array) -> bool:
    return bool(np.isfinite(table).all() and (table != MISSING).all())
