"""What is there already: the user's own copy, or what an earlier call has made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from oneproj.errors import InvalidDataError
from oneproj_paper.data.cache import damage
from oneproj_paper.data.find import VARIABLE, cache_folder, own_folder

LOG = logging.getLogger(__name__)
NOTHING_TO_DO = "%s is already there, verified: nothing to do without refresh."

Reader = Callable[[Path], object]
"""Reads a file, and refuses a wrong one with an InvalidDataError."""


def problem_of(path: Path, read: Reader) -> str | None:
    """What is wrong with a file, by its checksum and by what it holds; else None."""
    found = damage(path)
    if found is not None:
        return f"{path}: {found}. Prepare it again."
    try:
        read(path)
    except (InvalidDataError, OSError) as error:
        return str(error)
    return None


def own_copy(files: Mapping[str, Reader]) -> Path | None:
    """The first of these files that is in the user's own folder, verified.

    A loader looks into that folder first, so what the cache would hold is of no use.

    Raises:
        InvalidDataError: It is there, but it is not what it should be.
    """
    path, read = _own(files)
    if path is None or read is None:
        return None
    problem = problem_of(path, read)
    if problem is not None:
        message = (
            f"{problem}\n{VARIABLE} names the folder of that file, and loaders look "
            "there first, so preparing another would not help. Try: replace or remove "
            f"the file, or unset {VARIABLE}."
        )
        raise InvalidDataError(message)
    LOG.info(NOTHING_TO_DO, path)
    return path


def is_made(path: Path, read: Reader) -> bool:
    """Whether the cache holds this file and it is sound; a damaged one is not."""
    if not path.is_file():
        return False
    problem = problem_of(path, read)
    if problem is None:
        LOG.info(NOTHING_TO_DO, path)
    else:
        LOG.warning("%s It is made again now.", problem)
    return problem is None


def warn_if_hidden(files: Mapping[str, Reader]) -> None:
    """Say so if loaders will not take what was just made."""
    own, _ = _own(files)
    if own is not None:
        LOG.warning("Loaders take %s instead, which %s names.", own, VARIABLE)


def _own(files: Mapping[str, Reader]) -> tuple[Path, Reader] | tuple[None, None]:
    own = own_folder()
    if own is not None and own.absolute() != cache_folder():
        for file, read in files.items():
            if (path := own / file).is_file():
                return path, read
    return None, None
