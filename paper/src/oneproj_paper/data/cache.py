"""Files of the user's cache: written whole or not at all, by one process at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from oneproj.files import drafting, force, write_text
from oneproj_paper.data.find import cache_folder

CHUNK = 1 << 20


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
        publish(partial, path)


def publish(partial: Path, path: Path) -> None:
    """Give a complete file its final name, and put its digest beside it."""
    value = digest(partial)
    force(partial)
    # Between these lines there is no digest and no recipe, rather than wrong ones.
    _seal(path).unlink(missing_ok=True)
    _recipe(path).unlink(missing_ok=True)
    partial.replace(path)
    write_text(_seal(path), f"{value}\n")


def damage(path: Path) -> str | None:
    """What is wrong with a file whose digest was noted when it was written.

    None if nothing is, or if no digest is known: a file of the user's own has none.
    """
    seal = _seal(path)
    if not seal.is_file():
        return None
    noted = seal.read_text(encoding="ascii", errors="replace").strip()
    found = digest(path)
    if noted == found:
        return None
    return f"its SHA-256 is {found}, but was {noted} when it was written"


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file's content, in hexadecimal digits.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "empty"
        ...     path.touch()
        ...     digest(path, "md5")
        'd41d8cd98f00b204e9800998ecf8427e'
    """
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            state.update(chunk)
    return state.hexdigest()


def discard(path: Path) -> None:
    """Remove a file that is not needed any more, with its digest and its recipe."""
    for file in (path, _seal(path), _recipe(path)):
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
    write_text(_recipe(path), f"{json.dumps(recipe)}\n")


def read_recipe(path: Path) -> dict[str, Any] | None:
    """The choices a file was made with; None if they were not noted."""
    try:
        recipe = json.loads(_recipe(path).read_text("utf-8"))
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


def _seal(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _recipe(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
