"""A checkpoint is a file that is whole or refused: header, checksum, ``torch.save``.

The first line names the format, the second is the SHA-256 of everything after it, which
is what ``torch.save`` wrote: plain containers, numbers, strings and tensors, so that
``torch.load(weights_only=True)`` reads it and no code in it can run. A file is replaced
in one step: whoever looks, and whenever the machine stops, finds the checkpoint before
or the one after.
"""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch

from oneproj.arguments import as_path
from oneproj.errors import CheckpointError
from oneproj.files import in_words, replacing
from oneproj.schema import AbstractSchema, SchemaError
from oneproj.tensor_schema import PLAIN

VERSION = 11
"""Of the format. A state that is read otherwise than before needs another number."""
MAGIC = b"oneproj checkpoint, format "
DIGEST_LINE = 65
"""Bytes of the second line: 64 hexadecimal digits and a newline."""
PIECE = 2**20
"""Bytes per read while the checksum is computed."""
State = dict[str, Any]


def checkpoint_file(location: str | PathLike[str]) -> Path:
    """Where a checkpoint is to be: a file, not a folder.

    Raises:
        CheckpointError: There is a folder of that name, or no file can have it.

    Example:
        >>> checkpoint_file("run.pt").name
        'run.pt'
    """
    path = as_path("checkpoint", location, also=" or None")
    try:
        folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise CheckpointError(_refused(path, error)) from error
    if folder:
        message = (
            f"The checkpoint {str(path)!r} is a folder, but one run is one file, "
            "replaced as it goes. Name a file in it: "
            f"{str(path / 'run.pt')!r}."
        )
        raise CheckpointError(message)
    return path


def begin_checkpoint(path: Path, state: State) -> None:
    """Write the first checkpoint of a run: what cannot be saved is found at once.

    Raises:
        CheckpointError: It cannot be written, to this place or at all.
    """
    try:
        write_checkpoint(path, state)
    except (OSError, ValueError) as error:
        raise CheckpointError(_refused(path, error)) from error


def write_checkpoint(path: Path, state: State) -> None:
    """Write a checkpoint, in one step as far as anyone can see.

    Raises:
        CheckpointError: The state holds an object that could not be read back safely.
        OSError: The folder cannot be written, or the disk is full.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checkpoint(Path(folder, "run.pt"), {"update": 3})
        ...     read_checkpoint(Path(folder, "run.pt"))
        {'update': 3}
    """
    try:
        PLAIN.check(state, "the run")
    except SchemaError as error:
        message = (
            f"The state of this run cannot be saved: {error}, and a checkpoint holds "
            "numbers, strings, tensors and containers of them only, so that loading "
            "one runs no code. An optimiser or scheduler of your own can say what to "
            "save in state_dict()."
        )
        raise CheckpointError(message) from error
    first = MAGIC + str(VERSION).encode() + b"\n"
    with replacing(path) as draft, draft.open("w+b") as stream:
        stream.write(first + b" " * DIGEST_LINE)
        _save(state, stream)
        stream.seek(len(first) + DIGEST_LINE)
        digest = _digest(stream)
        stream.seek(len(first))
        stream.write(digest + b"\n")


def read_checkpoint(path: Path) -> State:
    """Read a checkpoint; only a whole one, of this format.

    Raises:
        CheckpointError: There is none, or it is truncated, damaged or something else.
    """
    try:
        return _read(path)
    except OSError as error:
        message = (
            f"The checkpoint {str(path)!r} cannot be read: {in_words(error)}. Nothing "
            "was loaded."
        )
        raise CheckpointError(message) from error


def _read(path: Path) -> State:
    if not path.is_file():
        message = (
            f"There is no checkpoint at {str(path)!r} to resume from. Check the path, "
            "or start a run with checkpoint=; with resume=True as well it starts anew "
            "where there is no checkpoint yet."
        )
        raise CheckpointError(message)
    with path.open("rb") as stream:
        _check_version(path, stream.readline(len(MAGIC) + 20))
        noted = stream.read(DIGEST_LINE).rstrip(b"\n")
        start = stream.tell()
        if _digest(stream) != noted:
            message = (
                f"The checkpoint {str(path)!r} is truncated or damaged: its contents "
                "do not have the checksum that was noted when it was written. Nothing "
                "was loaded. Checkpoints are replaced in one step, so this happened "
                "afterwards, in a copy for example: take another copy, or delete it "
                "and start anew."
            )
            raise CheckpointError(message)
        stream.seek(start)
        try:
            state = torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # contents of any kind: torch raises errors of all
            message = (
                f"The checkpoint {str(path)!r} is whole, but torch {torch.__version__} "
                f"cannot read it ({type(error).__name__}). Use the version that wrote "
                "it, or delete it and start anew."
            )
            raise CheckpointError(message) from error
    return state if isinstance(state, dict) else {}


def checked(schema: AbstractSchema, state: object) -> Any:  # noqa: ANN401 - plain data
    """What was read, if it is what the schema says.

    Raises:
        CheckpointError: It is not; the message says where.

    Example:
        >>> from oneproj.schema import Fields, Integer
        >>> checked(Fields({"update": Integer(least=0, most=9)}), {"update": -5})
        Traceback (most recent call last):
        oneproj.errors.CheckpointError: The checkpoint is whole, but it is not that ...
    """
    try:
        return schema.check(state, "it")
    except SchemaError as error:
        message = (
            "The checkpoint is whole, but it is not that of a run that this call can "
            f"go on with: {error}. Something else wrote it, or it was changed. Nothing "
            "was loaded. Pass the path that was given to solve(checkpoint=...), or "
            "start anew."
        )
        raise CheckpointError(message) from error


def _save(state: State, stream: BinaryIO) -> None:
    try:
        torch.save(state, stream)
    except RuntimeError as error:  # torch's own words hide what the disk said
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _refused(path: Path, error: OSError | ValueError) -> str:
    return (
        f"The checkpoint {str(path)!r} cannot be written: {in_words(error)}. No update "
        "was made, since a stop would lose it. Choose a file in a folder that you can "
        "write to, on a disk with room, or leave out checkpoint=."
    )


def _check_version(path: Path, line: bytes) -> None:
    found = line.removeprefix(MAGIC).removesuffix(b"\n")
    if not (line.startswith(MAGIC) and line.endswith(b"\n")):
        message = (
            f"The file {str(path)!r} is not a checkpoint of this library, or its first "
            "bytes are lost. Pass the path that was given to solve(checkpoint=...)."
        )
        raise CheckpointError(message)
    if found != str(VERSION).encode():
        message = (
            f"The checkpoint {str(path)!r} has format {found.decode(errors='replace')},"
            f" this version of the library reads format {VERSION}. Finish the run with "
            "the version that began it, or delete the file and start anew."
        )
        raise CheckpointError(message)


def _digest(stream: BinaryIO) -> bytes:
    """The checksum of the rest of a file."""
    digest = hashlib.sha256()
    while piece := stream.read(PIECE):
        digest.update(piece)
    return digest.hexdigest().encode()
