"""Files that are whole or not there: written beside their place, then moved there.

What is written goes to a draft, is forced to the disk and only then takes its name, in
one step: whoever looks, and whenever the machine stops, finds the file before or the
one after. One writer per place: a second one would write into the same draft. In
return, what a killed process left of a draft is gone after the next write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def drafting(path: Path) -> Iterator[Path]:
    """The place of a draft beside ``path``; nothing is there after the block.

    The folder of both is made if there is none.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with drafting(Path(folder, "deep", "table.csv")) as draft:
        ...         _ = draft.write_text("a,b")
        ...     draft.name, draft.exists()
        ('table.csv.draft', False)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    try:
        yield draft
    finally:  # Ctrl-C or a full disk: no half of a file stays
        draft.unlink(missing_ok=True)


def force(path: Path) -> None:
    """Return when the content of a file is on the disk, and not only on its way.

    Example:
        >>> force(Path("no such file"))
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft that takes the name of ``path`` when the block succeeds.

    Whatever ends the block early, Ctrl-C included, leaves ``path`` as it was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "table.csv")
        ...     with replacing(path) as draft:
        ...         _ = draft.write_text("a,b")
        ...         path.exists()
        ...     path.read_text()
        False
        'a,b'
    """
    with drafting(path) as draft:
        yield draft
        force(draft)
        draft.replace(path)


def write_text(path: Path, text: str) -> None:
    r"""Write a text, in one step as far as anyone can see; the same bytes everywhere.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "note.txt")
        ...     write_text(path, "one line\n")
        ...     path.read_bytes()
        b'one line\n'
    """
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="")
