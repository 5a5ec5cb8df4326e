"""Columns of CSV files as arrays, and the check that a file is the right one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from oneproj.vectors.arithmetic import Array
from oneproj_paper.errors import InvalidDataError

MISSING = ("", "NA")


def read_columns(path: Path, names: Sequence[str]) -> Array:
    r"""Read columns by name, in the order asked for; missing values become NaN.

    Raises:
        InvalidDataError: It is no text, a column is not there, or a value is not a
            number.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "table.csv"
        ...     _ = path.write_text("a,b,c\n1,2,NA\n4,5,6\n")
        ...     read_columns(path, ["c", "a"])
        array([[nan,  1.],
               [ 6.,  4.]])
    """
    header = _header(path)
    absent = [name for name in names if name not in header]
    if absent:
        message = (
            f"{path} has no column {', '.join(absent)}. Its columns are: "
            f"{', '.join(header)}. It may be another file of the same name."
        )
        raise InvalidDataError(message)
    places = [header.index(name) for name in names]
    try:
        return np.loadtxt(
            path,
            delimiter=",",
            skiprows=1,
            usecols=places,
            converters=_number,
            ndmin=2,
            quotechar='"',
        )
    except ValueError as error:
        if not isinstance(error.__cause__, Exception | None):
            raise error.__cause__ from None  # Ctrl-C meanwhile: NumPy blames the value
        message = f"{path} could not be read as numbers: {error}."
        raise InvalidDataError(message) from error


def check_counts(path: Path, labels: Array, expected: tuple[int, int]) -> None:
    """Refuse a file that does not have the expected number of rows of each class.

    Raises:
        InvalidDataError: The counts differ, or a label is neither 0 nor 1.

    Example:
        >>> check_counts(Path("table.csv"), np.array([0.0, 1.0, 0.0]), (2, 1))
    """
    found = (int((labels == 0).sum()), int((labels == 1).sum()))
    if found == expected and sum(found) == len(labels):
        return
    message = (
        f"{path} holds {len(labels):,} rows, {found[0]:,} of class 0 and "
        f"{found[1]:,} of class 1; expected are {expected[0]:,} and {expected[1]:,}. "
        "It may be truncated or another version: fetch it again."
    )
    raise InvalidDataError(message)


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:  # Excel begins with a mark
            line = file.readline()
    except UnicodeDecodeError as error:
        message = f"{path} is no text file: {error}. It may be damaged or compressed."
        raise InvalidDataError(message) from error
    if not line:
        message = f"{path} is empty. Fetch it again."
        raise InvalidDataError(message)
    return [name.strip().strip('"') for name in line.split(",")]


def _number(text: str) -> float:
    return math.nan if text in MISSING else float(text)
