"""Cached files: written whole or not at all, by one process at a time, and verified.

Beside a file that was made here lie its SHA-256 and the choices it was made with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pooch
from filelock import FileLock

from oneproj.files import drafting, force, write_text
from oneproj_paper.data.find import VARIABLE, cache_folder, own_folder
from oneproj_paper.errors import InvalidDataError

LOG = logging.getLogger(__name__)
NOTHING_TO_DO = "%s is already there, verified: nothing to do without refresh."

Reader = Callable[[Path], object]
"""Reads a file, and refuses a wrong one with an InvalidDataError."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its name when the block succeeds.

    Whatever ends the block early, Ctrl-C included, leaves ``path`` as it was. The
    digest of the new file is put beside it, for ``damage``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "deep" / "table.csv"
        ...     with replacing(path) as partial:
        ...         _ = partial.write_text("a,b")
        ...     path.read_text(), damage(path)
        ('a,b', None)
    """
    with drafting(path) as partial:
        yield partial
        value = pooch.file_hash(str(partial))
        force(partial)
        # Between these lines there is no digest and no recipe, rather than wrong ones.
        _digest_file(path).unlink(missing_ok=True)
        _recipe_file(path).unlink(missing_ok=True)
        partial.replace(path)
        write_text(_digest_file(path), f"{value}\n")


def damage(path: Path) -> str | None:
    """What is wrong with a file whose digest was noted when it was written.

    None if nothing is, or if no digest is known: a file of the user's own has none.
    """
    note = _digest_file(path)
    if not note.is_file():
        return None
    noted = note.read_text(encoding="ascii", errors="replace").strip()
    found = pooch.file_hash(str(path))
    if noted == found:
        return None
    return f"its SHA-256 is {found}, but was {noted} when it was written"


def discard(path: Path) -> None:
    """Remove a file that is not needed any more, with its digest and its recipe."""
    for file in (path, _digest_file(path), _recipe_file(path)):
        file.unlink(missing_ok=True)


def write_recipe(path: Path, recipe: Mapping[str, object]) -> None:
    """Note beside a complete file which choices it was made with, as JSON.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "table.csv"
        ...     write_recipe(path, {"years": (2009, 2023)})
        ...     read_recipe(path), read_recipe(Path(folder) / "other.csv")
        ({'years': [2009, 2023]}, None)
    """
    write_text(_recipe_file(path), f"{json.dumps(recipe)}\n")


def read_recipe(path: Path) -> dict[str, Any] | None:
    """The choices a file was made with; None if they were not noted."""
    try:
        recipe = json.loads(_recipe_file(path).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Wait until no other process prepares this data set; released even by a crash."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{name}.lock"):
        yield


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


def is_cached(path: Path, read: Reader) -> bool:
    """Whether the cache holds this file and its content is right."""
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


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _recipe_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
