"""Where data files are: the folder that ONEPROJ_DATA names, then the user's cache.

A file has the same name in both, relative to the folder: ``credit/cs-training.csv``,
for example. Whatever fetches a file has to put it under ``cache_folder()``; nothing
else here needs to know.
"""

from __future__ import annotations

import os
from pathlib import Path

from oneproj.data.extras import require
from oneproj.errors import DataNotFoundError

VARIABLE = "ONEPROJ_DATA"
"""The environment variable that names the user's own folder."""


def cache_folder() -> Path:
    """The folder of this user for data that can be fetched again.

    Example:
        >>> cache_folder().name
        'data'
    """
    return Path(require("platformdirs").user_cache_dir("oneproj")) / "data"


def find(name: str) -> Path:
    """The path of a data file.

    Raises:
        DataNotFoundError: It is in neither place; the message names both.

    Example:
        >>> find("no/such/file.csv")
        Traceback (most recent call last):
        oneproj.errors.DataNotFoundError: 'no/such/file.csv' was not found...
    """
    named = os.environ.get(VARIABLE)
    folders = [*([Path(named)] if named else []), cache_folder()]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    places = ", ".join(str(folder) for folder in folders)
    unset = "" if named else f" ({VARIABLE} is not set)"
    message = (
        f"{name!r} was not found. Looked in: {places}{unset}. Set {VARIABLE} to a "
        f"folder that holds it under that name."
    )
    raise DataNotFoundError(message)
