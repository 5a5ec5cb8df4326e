"""The table of the paper's eight ClimSim locations, made of pieces from the hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from oneproj.errors import InvalidProblemError
from oneproj_paper.data.cached_files import (
    discard,
    is_cached,
    locked,
    own_copy,
    read_recipe,
    replacing,
    warn_if_hidden,
    write_recipe,
)
from oneproj_paper.data.climsim_files import STRIDE
from oneproj_paper.data.climsim_groups import read_groups
from oneproj_paper.data.climsim_hub import (
    ARRAYS,
    FIRST_MONTH,
    HUB_VARIABLE,
    LAST_MONTH,
    netcdf_rows,
    subsampled_rows,
)
from oneproj_paper.data.climsim_rows import Rows, concatenate, read_rows, write_rows
from oneproj_paper.data.fetch import other_ways
from oneproj_paper.data.find import VARIABLE, cache_folder
from oneproj_paper.errors import InvalidDataError

NAME = "climsim"
TABLE = "climsim/climsim_groups_26_27.npz"
MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
MONTHS = 12
OWN = {TABLE: read_groups}
ADVICE = (
    f"Other ways: (a) {HUB_VARIABLE} may name a mirror of the hub; (b) set {VARIABLE} "
    f"to a folder that holds {TABLE}, made by this command on another machine; (c) or "
    "to one that holds the hub's files: climsim/subsampled/{train,val}_{input,target}"
    ".npy and climsim/norm/input_{mean,max,min}.nc."
)

Pieces = dict[str, Callable[[], Rows]]


def prepare_climsim(
    *,
    parts: Sequence[str] = tuple(ARRAYS),
    months: tuple[str, str] | None = None,
    every: int = STRIDE,
    refresh: bool = False,
    progress: bool | None = None,
) -> Path:
    """Make the table of locations 104 to 111 from ClimSim's files on Hugging Face.

    The subsampled arrays are 10.2 GB (``train``, seven years) and 1.5 GB (``val``, the
    eighth); of each pair 0.1 GB are kept and the pair is deleted, so the disk needs
    room for one pair. That never starts by itself. Every pair, or month of files, that
    is done stays done, and so does every file that has arrived: after an interruption,
    run the same again. HF_ENDPOINT may name a mirror of the hub, by https;
    ONEPROJ_ALLOW_HTTP=1 allows http as well. With the default choices a table under
    ONEPROJ_DATA is verified and nothing is made.

    Args:
        parts: Of the subsampled set: ``"train"``, ``"val"`` or both.
        months: Take netCDF files instead, of the months from the first to the last,
            as ``("0001-02", "0009-01")``; 3 MB a step.
        every: With ``months``: take every ``every``-th step of 20 minutes.
        refresh: Do it again where it was done before with the same choices.
        progress: None shows bars on a terminal.

    Raises:
        InvalidProblemError: There is no such part or month, or the mirror has no https.
        DataNotFoundError: A file could not be fetched.
        InvalidDataError: A file is not what it should be.

    Example:
        >>> prepare_climsim(parts=["test"])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: parts=['test'] ...
    """
    if months is None:
        pieces = _arrays(parts, progress=progress)
        recipe: dict[str, object] = {"parts": list(parts)}
    else:
        pieces = _months(months, every, progress=progress)
        recipe = {"months": list(months), "every": every}
    chosen = recipe != {"parts": list(ARRAYS)}
    found = None if refresh or chosen else own_copy(OWN)
    if found is not None:
        return found
    path = cache_folder() / TABLE
    with locked(NAME), other_ways(ADVICE):
        same = read_recipe(path) == recipe and not refresh
        if same and is_cached(path, read_groups):
            return path
        files = {
            path.parent / "pieces" / f"{name}.npz": pieces[name] for name in pieces
        }
        rows = concatenate([_piece(file, make) for file, make in files.items()])
        with replacing(path) as temporary:
            write_rows(temporary, rows)
        write_recipe(path, recipe)
        for file in files:
            discard(file)
    warn_if_hidden(OWN)
    return path


def _piece(path: Path, make: Callable[[], Rows]) -> Rows:
    """Rows that were saved by an interrupted run, or else made now, and saved."""
    if path.is_file():
        try:
            return read_rows(path)
        except InvalidDataError:
            discard(path)
    rows = make()
    with replacing(path) as temporary:
        write_rows(temporary, rows)
    return rows


def _arrays(parts: Sequence[str], *, progress: bool | None) -> Pieces:
    if not parts or not set(parts) <= set(ARRAYS) or len(set(parts)) < len(parts):
        message = (
            f"parts={list(parts)} should name {' or '.join(ARRAYS)}, or both: the "
            "other arrays of the hub are of the same months as val."
        )
        raise InvalidProblemError(message)
    return {
        f"subsampled-{name}": partial(subsampled_rows, name, progress=progress)
        for name in ARRAYS
        if name in parts
    }


def _months(months: tuple[str, str], every: int, *, progress: bool | None) -> Pieces:
    first, last = months
    named = all(MONTH.fullmatch(month) for month in months)
    if not (named and FIRST_MONTH <= first <= last <= LAST_MONTH and every >= 1):
        message = (
            f"months={months}, every={every} should be a first and a last month from "
            f"{FIRST_MONTH} to {LAST_MONTH}, and a number of steps from 1 on."
        )
        raise InvalidProblemError(message)
    a, b = (MONTHS * int(m[:4]) + int(m[5:]) - 1 for m in months)
    names = [f"{k // MONTHS:04}-{k % MONTHS + 1:02}" for k in range(a, b + 1)]
    return {
        f"raw-{name}-{every}": partial(
            netcdf_rows, name, every=every, progress=progress
        )
        for name in names
    }
