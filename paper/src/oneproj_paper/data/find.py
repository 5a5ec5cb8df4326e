"""Where data files are: the folder that ONEPROJ_DATA names, then the user's cache.

A file has the same name in both, relative to the folder: ``credit/cs-training.csv``,
for example. ONEPROJ_CACHE moves the cache. What is in neither has to be prepared: a
small download starts by itself, a large one, or one that needs a choice, waits for
``oneproj-paper data prepare``. ONEPROJ_OFFLINE forbids every download.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from oneproj.errors import InvalidProblemError, OneprojError
from oneproj_paper.errors import DataNotFoundError

VARIABLE = "ONEPROJ_DATA"
"""The environment variable that names the user's own folder; it is only read."""
CACHE_VARIABLE = "ONEPROJ_CACHE"
"""The environment variable that moves the cache, to a larger disk for example."""
OFFLINE = "ONEPROJ_OFFLINE"
"""The environment variable that forbids downloads, unless it is empty, 0, false or no.
"""


def cache_folder() -> Path:
    """The folder for data that can be fetched again: the user's cache.

    Raises:
        InvalidProblemError: The user has no home, and no variable names a folder.

    Example:
        >>> cache_folder().is_absolute()
        True
    """
    named = _named(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    try:
        found = platformdirs.user_cache_dir("oneproj")
    except RuntimeError as error:
        if isinstance(error, OneprojError):
            raise
        message = (
            f"There is no home directory for a cache here: {error}. Set "
            f"{CACHE_VARIABLE} to a folder for it."
        )
        raise InvalidProblemError(message) from error
    return Path(found) / "data"


def own_folder() -> Path | None:
    """The user's own folder, or None if ONEPROJ_DATA does not name one.

    Raises:
        InvalidProblemError: What it names is no folder. Going on without it could
            start a long download of what the user has.
    """
    named = _named(VARIABLE)
    if not named:
        return None
    folder = Path(named)
    what = None
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
    elif not os.access(folder, os.R_OK | os.X_OK):
        what = "cannot be read by you"
    if what is not None:
        message = (
            f"{VARIABLE} should name a folder with data files, such as "
            f"credit/cs-training.csv, but {named!r} {what}. Name another, or unset it "
            "to use the cache alone."
        )
        raise InvalidProblemError(message)
    return folder


def folders() -> list[Path]:
    """Where to look, in this order.

    Raises:
        InvalidProblemError: ONEPROJ_DATA names something that is no folder.
    """
    own = own_folder()
    return [*([own] if own else []), cache_folder()]


def locate(name: str) -> Path | None:
    """The path of a data file, or None if it is in neither place.

    Example:
        >>> locate("no/such/file.csv") is None
        True
    """
    paths = (folder / name for folder in folders())
    return next((path for path in paths if path.is_file()), None)


def is_offline() -> bool:
    """Whether ONEPROJ_OFFLINE forbids every transfer.

    Example:
        >>> import os
        >>> before = os.environ.get(OFFLINE)
        >>> os.environ[OFFLINE] = "1"
        >>> is_offline()
        True
        >>> _ = os.environ.pop(OFFLINE)
        >>> is_offline()
        False
        >>> if before is not None:
        ...     os.environ[OFFLINE] = before
    """
    return os.environ.get(OFFLINE, "").lower() not in {"", "0", "false", "no"}


def find(name: str, *, data: str, download: Callable[[], Path] | None = None) -> Path:
    """The path of a data file, downloaded if that is allowed to start by itself.

    Args:
        name: The file, relative to either folder.
        data: The data set it belongs to, for ``oneproj-paper data prepare``.
        download: Fetches a small file into the cache; None for a large one.

    Raises:
        DataNotFoundError: It is in neither place and was not fetched; the message
            names the places and the command.

    Example:
        >>> find("no/such/file.csv", data="credit")
        Traceback (most recent call last):
        oneproj_paper.errors.DataNotFoundError: 'no/such/file.csv' was not found...
    """
    path = locate(name)
    if path is not None:
        return path
    if download is None or is_offline():
        raise DataNotFoundError(_absent(name, data, forbidden=download is not None))
    try:
        return download()
    except OSError as error:  # no source, or no room for what it sends
        message = f"{_absent(name, data)} Downloading it now failed: {error}"
        raise DataNotFoundError(message) from error


def _named(variable: str) -> str:
    """The folder that a variable names; a ``~`` may still be in it."""
    return os.path.expanduser(os.environ.get(variable, ""))  # noqa: PTH111 - no error


def _absent(name: str, data: str, *, forbidden: bool = False) -> str:
    places = ", ".join(str(folder) for folder in folders())
    unset = "" if os.environ.get(VARIABLE) else f" ({VARIABLE} is not set)"
    offline = f" {OFFLINE} is set, so it was not downloaded." if forbidden else ""
    return (
        f"{name!r} was not found. Looked in: {places}{unset}.{offline} Run "
        f"`oneproj-paper data prepare {data}`, or set {VARIABLE} to a folder that "
        "holds it under that name."
    )
