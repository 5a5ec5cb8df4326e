"""Files that are whole or not there: written beside their place, then moved there.

What is written goes to a draft, is forced to the disk and only then takes its name, in
one step; then the folder is forced to the disk. A reader, at any time and after any
stop of the machine, finds the old file or the new one. Every writer has a draft of its
own, so of two at once the last one counts. The next write to the same place removes
the draft that a killed process left.

A link stays a link, and the file that it leads to is replaced; its mode stays as well.
A device or a pipe is never replaced: what is written is handed to it.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EAGAIN, EBADF, EINVAL, EISDIR, ENOTDIR, ENOTSUP
from pathlib import Path
from shutil import copyfileobj
from stat import S_IMODE
from tempfile import TemporaryDirectory
from typing import BinaryIO

ABANDONED = 86_400.0
"""Seconds without a write after which a draft may be removed. For drafts of other
machines, whose processes cannot be looked up."""


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
        ('table.csv....draft', False)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    owner = f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    draft = path.with_name(f"{path.name}.{owner}.draft")
    try:
        yield draft
    finally:  # Ctrl-C or a full disk: no half of a file stays
        draft.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Fail now, and not after hours of work, where a file could not be written.

    Nothing is there afterwards that was not there before, no folder either.

    Raises:
        OSError: As writing would: a bad path, no permission, a full disk.

    Example:
        >>> check_place(Path(__file__, "table.csv"))
        Traceback (most recent call last):
        NotADirectoryError: ...
    """
    if path.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    if is_special(path):
        return
    path = Path(os.path.realpath(path))
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))
    try:
        with drafting(folder / path.name) as draft:
            draft.write_bytes(b"x")  # a full disk has room for an empty file
            force(draft)
    except OSError as error:
        error.filename = str(folder)  # the caller does not know of the draft
        raise


def in_words(error: OSError | ValueError) -> str:
    """What a file or a disk refused, and where; a ValueError is of a path.

    Example:
        >>> in_words(PermissionError(13, "Permission denied", "runs/a.json"))
        'Permission denied: runs/a.json'
        >>> in_words(OSError("no room"))
        'no room'
    """
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    place = error.filename2 or error.filename
    return error.strerror if place is None else f"{error.strerror}: {place}"


def force(path: Path) -> None:
    """Return when the content of a file is on the disk, and not only on its way.

    Example:
        >>> force(Path("no such file"))
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def force_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk, where that can be asked for.

    Without it a machine that stops may come back with the file before.

    Raises:
        OSError: The disk fails. A system, or a disk, that cannot do it is no error.

    Example:
        >>> force_folder(Path())
    """
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder to write to that must not be listed
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (EINVAL, ENOTSUP, EBADF):
            raise
    finally:
        os.close(opened)


def is_special(path: Path) -> bool:
    """Whether there is something that is no file and no folder: a device or a pipe.

    Example:
        >>> is_special(Path(os.devnull)), is_special(Path(__file__))
        (True, False)
    """
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft that takes the name of ``path`` when the block succeeds.

    Whatever ends the block early, Ctrl-C included, leaves ``path`` as it was. A device
    or a pipe is given what was written, and keeps its name.

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
    if is_special(path):
        with TemporaryDirectory() as folder:
            yield (draft := Path(folder, "draft"))
            with draft.open("rb") as source, path.open("wb") as sink:
                copyfileobj(source, sink)
        return
    target = Path(os.path.realpath(path))  # or a link would be replaced, not its file
    with drafting(target) as draft:
        yield draft
        force(draft)
        with suppress(OSError):  # no file yet; or a disk without modes
            draft.chmod(S_IMODE(target.stat().st_mode))
        draft.replace(target)
        force_folder(target.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from locking the same file as long as the block lasts.

    The lock is on ``<name>.lock`` beside the file, and belongs to this process alone:
    it goes when the process ends, killed or not, also while forked workers live on. A
    killed process leaves an empty ``.lock``, which the next one takes over. Where the
    system or the disk has no such locks, nobody is kept out.

    Raises:
        BlockingIOError: Another process has it.
        OSError: The folder cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with locked(Path(folder, "run.pt")):
        ...         [file.name for file in Path(folder).iterdir()]
        ['run.pt.lock']
    """
    if os.name != "posix" or is_special(path):
        yield
        return
    target = Path(os.path.realpath(path))
    place = target.with_name(f"{target.name}.lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    with _own(place):
        yield


@contextmanager
def _own(place: Path) -> Iterator[None]:
    """Lock a file that is there for nothing else, and remove it afterwards."""
    import fcntl  # only there on POSIX

    while True:
        with place.open("ab") as stream:
            try:  # not flock, which forked workers would go on holding
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # any other error: there are no locks here
                if error.errno in (EACCES, EAGAIN):
                    raise BlockingIOError(EAGAIN, os.strerror(EAGAIN)) from error
            if not _is_open(stream, place):
                continue  # whoever had it removed it just now: try the next one
            try:
                yield
            finally:
                place.unlink(missing_ok=True)
            return


def _is_open(stream: BinaryIO, place: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), place.stat())
    except FileNotFoundError:
        return False


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


def _machine() -> str:
    """A short word for this machine: processes are numbered on each."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_abandoned(path: Path) -> None:
    """Remove the drafts for a place whose writers were killed."""
    pattern = re.compile(rf"{re.escape(path.name)}\.(\w+)-(\d+)-\w+\.draft")
    with suppress(OSError):  # a folder to write to that must not be listed
        for file in list(path.parent.iterdir()):
            if (found := pattern.fullmatch(file.name)) is None:
                continue
            with suppress(OSError):  # another was faster, or it is not ours to remove
                idle = time.time() - file.stat().st_mtime
                ours = found[1] == _machine()
                if idle > ABANDONED or (ours and _is_gone(int(found[2]))):
                    file.unlink()


def _is_gone(process: int) -> bool:
    """Whether a process of this machine has surely ended."""
    if os.name != "posix":  # elsewhere, to ask a process is to end it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # there, but somebody else's; or no number of one
        return False
    return False
