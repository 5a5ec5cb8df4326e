"""The credit file: its columns, the check that it is the right one, its download.

The source is OpenML's data set 45577: a description in JSON, which names an ARFF file
and its MD5. It is kept as Kaggle's ``cs-training.csv``, so that one reader serves the
download and the user's own copy.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data.cached_files import (
    discard,
    is_cached,
    locked,
    own_copy,
    replacing,
    warn_if_hidden,
)
from oneproj_paper.data.fetch import fetch, other_ways
from oneproj_paper.data.find import VARIABLE, cache_folder
from oneproj_paper.data.tables import check_counts, read_columns
from oneproj_paper.errors import DataNotFoundError, InvalidDataError

NAME = "credit"
FILE = "credit/cs-training.csv"
LABEL = "SeriousDlqin2yrs"
INCOME = "MonthlyIncome"
COLUMNS = (
    "RevolvingUtilizationOfUnsecuredLines",
    "age",
    "NumberOfTime30-59DaysPastDueNotWorse",
    "DebtRatio",
    INCOME,
    "NumberOfOpenCreditLinesAndLoans",
    "NumberOfTimes90DaysLate",
    "NumberRealEstateLoansOrLines",
    "NumberOfTime60-89DaysPastDueNotWorse",
    "NumberOfDependents",
)
INCOMPLETE = (INCOME, "NumberOfDependents")
"""The columns with missing values."""
COUNTS = (139_974, 10_026)
"""Rows of each class in the whole file."""
OPENML = "https://www.openml.org"
OPENML_ID = 45577
ADVICE = (
    "Other ways: (a) take cs-training.csv from Kaggle's Give Me Some Credit, on any "
    "machine, and run `oneproj-paper data prepare credit --file cs-training.csv`; (b) "
    f"set {VARIABLE} to a folder that holds it as {FILE}."
)


def read_credit(path: Path) -> Array:
    """The label and the ten columns of all rows; missing values are NaN.

    Raises:
        InvalidDataError: It is not the file with 150,000 rows and 10,026 defaults, or
            a value is infinite, or missing where that file misses none.
    """
    table = read_columns(path, [LABEL, *COLUMNS])
    check_counts(path, table[:, 0], COUNTS)
    wrong = [
        name
        for name, column in zip(COLUMNS, table.T[1:], strict=True)
        if np.isinf(column).any() or (name not in INCOMPLETE and np.isnan(column).any())
    ]
    if wrong:
        message = (
            f"{path} has infinite or missing values where Kaggle's file has numbers, "
            f"in {', '.join(wrong)}. It may be damaged: fetch it again."
        )
        raise InvalidDataError(message)
    return table


def prepare_credit(
    *,
    file: str | Path | None = None,
    refresh: bool = False,
    progress: bool | None = None,
) -> Path:
    """Put the credit file into the user's cache, from OpenML or from a copy.

    About 10 MB. ``credit_abstention`` does it by itself where the file is missing,
    unless ONEPROJ_OFFLINE is set. Rows and classes are counted before the file gets
    its name. A file that is there, under ONEPROJ_DATA or in the cache, is verified and
    stays.

    Args:
        file: The user's own ``cs-training.csv``, from Kaggle; None downloads.
        refresh: Do it again where it was done before.
        progress: None shows a bar on a terminal.

    Raises:
        DataNotFoundError: The source cannot be reached, or there is no such file.
        InvalidDataError: It does not hold 150,000 rows and 10,026 defaults.

    Example:
        >>> prepare_credit(file="no/such/file.csv")
        Traceback (most recent call last):
        oneproj_paper.errors.DataNotFoundError: There is no file 'no/such/file.csv'...
    """
    if file is not None and not Path(file).is_file():
        message = f"There is no file {str(file)!r} to take the credit data from."
        raise DataNotFoundError(message)
    anew, own = refresh or file is not None, {FILE: read_credit}
    found = None if anew else own_copy(own)
    if found is not None:
        return found
    path = cache_folder() / FILE
    with locked(NAME), other_ways(ADVICE):
        # Another process may have done it while this one waited for the lock.
        if not anew and is_cached(path, read_credit):
            return path
        with replacing(path) as partial:
            if file is not None:
                read_credit(Path(file))
                partial.write_bytes(Path(file).read_bytes())
            else:
                source = _download(progress=progress)
                _convert(source, partial)
                discard(source)
                read_credit(partial)
    warn_if_hidden(own)
    return path


def _download(*, progress: bool | None) -> Path:
    """The ARFF file of OpenML, with the MD5 that its description gives."""
    folder = cache_folder() / NAME
    address = f"{OPENML}/api/v1/json/data/{OPENML_ID}"
    note = folder / f"openml-{OPENML_ID}.json"
    discard(note)  # it has no checksum: what a killed process left may be old
    fetch(address, note, progress=progress)
    try:
        entry = json.loads(note.read_text("utf-8"))["data_set_description"]
        url, md5 = str(entry["url"]), f"md5:{entry['md5_checksum']}"
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"{address} did not answer with the description of a data set: {error!r}. "
            f"OpenML may be out of order; try again later, or download cs-training.csv "
            "from Kaggle and run `oneproj-paper data prepare credit --file "
            "cs-training.csv`."
        )
        raise InvalidDataError(message) from error
    discard(note)
    path = folder / f"openml-{OPENML_ID}.arff"
    return fetch(url, path, checksum=md5, progress=progress)


def _convert(source: Path, target: Path) -> None:
    """From ARFF to the layout of Kaggle's file: row number, label, ten columns."""
    from scipy.io import arff  # half a second that no loader should pay for

    try:
        with source.open(encoding="utf-8") as file:
            rows, meta = arff.loadarff(file)
    except (arff.ArffError, ValueError, NotImplementedError, StopIteration) as error:
        message = f"{source} is not an ARFF file that can be read: {error}."
        raise InvalidDataError(message) from error
    given = {_plain(name): name for name in meta.names()}
    wanted = (LABEL, *COLUMNS)
    absent = [name for name in wanted if _plain(name) not in given]
    if absent:
        message = (
            f"{source} has no attribute {', '.join(absent)}. Its attributes are: "
            f"{', '.join(meta.names())}. OpenML's file may have changed."
        )
        raise InvalidDataError(message)
    columns = [rows[given[_plain(name)]] for name in wanted]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *wanted])
        for k, values in enumerate(zip(*columns, strict=True), start=1):
            writer.writerow([k, *map(_cell, values)])


def _plain(name: str) -> str:
    """A name without what differs between tools: case, dots, dashes, blanks."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _cell(value: Any) -> str:  # noqa: ANN401 - a number, or the bytes of a class
    if isinstance(value, bytes):
        return "NA" if value == b"?" else value.decode()
    number = float(value)
    if math.isnan(number):
        return "NA"
    return str(int(number)) if number.is_integer() else repr(number)
