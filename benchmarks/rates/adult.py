"""UCI Adult as a table: 14 columns, standardised and one-hot, with sex as the group."""

from __future__ import annotations

import csv
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.rates.problems import Table

NUMBERS = (0, 2, 4, 10, 11, 12)  # columns of adult.data that are numbers
SEX, LABEL, COLUMNS = 9, 14, 15


def adult_folder() -> Path | None:
    """The folder with adult.data and adult.test under ONEPROJ_DATA, if it is there."""
    root = os.environ.get("ONEPROJ_DATA")
    folder = None if root is None else Path(root) / "adult"
    return folder if folder is not None and (folder / "adult.data").exists() else None


@functools.cache
def load_adult(part: str = "data") -> Table:
    """The training rows (``"data"``) or the test rows (``"test"``).

    Numbers are standardised by the training rows; other columns are one-hot, without
    the sex, which is the group: 0 for women, 1 for men. The label is an income above
    50 000 dollars.
    """
    from benchmarks.rates.problems import Table

    folder = adult_folder()
    if folder is None:
        message = "Adult is not under ONEPROJ_DATA: adult/adult.data, adult/adult.test."
        raise FileNotFoundError(message)
    train = _read(folder / "adult.data")
    rows = train if part == "data" else _read(folder / "adult.test")
    numbers = torch.tensor([[float(r[c]) for c in NUMBERS] for r in train])
    mean, spread = numbers.mean(0), numbers.std(0)
    own = torch.tensor([[float(r[c]) for c in NUMBERS] for r in rows])
    columns = [(own - mean) / spread]
    for c in range(LABEL):
        if c in NUMBERS or c == SEX:
            continue
        words = sorted({r[c] for r in train})[1:]  # the first is the reference
        columns += [torch.tensor([[float(r[c] == w)] for r in rows]) for w in words]
    y = torch.tensor([r[LABEL].startswith(">50K") for r in rows])
    group = torch.tensor([int(r[SEX] == "Male") for r in rows])
    return Table(torch.cat(columns, 1), y, group)


def _read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        lines = [[w.strip() for w in row] for row in csv.reader(file)]
    return [row for row in lines if len(row) == COLUMNS]
