"""Checkpoints: where a run is saved, and files that are complete or refused.

The first line of a file names the format, the second is the SHA-256 of the rest, which
is what ``torch.save`` wrote. ``torch.load(weights_only=True)`` reads it, so that no
code in it can run. A file is replaced in one step: whenever the machine stops, there is
the checkpoint before or the one after.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import torch

from oneproj.arguments import as_path, check_count, check_flag
from oneproj.errors import CheckpointError, InvalidProblemError, deprecate
from oneproj.files import in_words, replacing
from oneproj.schema import SchemaError, check_plain

VERSION = 10  # of the format; a state that is read in another way needs another
INTERVAL = "It is how many updates there are from one checkpoint to the next."
MAGIC = b"oneproj checkpoint, format "
State = dict[str, Any]
Location: TypeAlias = str | PathLike[str]


@dataclass(frozen=True)
class Checkpoint:
    """Where ``solve`` saves a run, how often, and whether it goes on from there.

    Args:
        path: The file, replaced in one step.
        every: Updates between two saves; the run is also saved when its updates end.
        resume: Whether to go on from the file if it exists. Without, a file that
            exists is refused, never overwritten.

    Raises:
        InvalidProblemError: The path is not a path, or the interval not a count.

    Example:
        >>> Checkpoint("run.pt", every=500)
        Checkpoint(path='run.pt', every=500, resume=True)
    """

    path: Location
    every: int = 100
    resume: bool = True

    def __post_init__(self) -> None:
        """Check the values; the file is looked for by ``solve``."""
        as_path("path", self.path)
        check_flag("resume", self.resume, "It says whether to go on from the file.")
        object.__setattr__(self, "every", check_count("every", self.every, INTERVAL))


@dataclass(frozen=True)
class Files:
    """The files of one run: where it begins, and where it is saved.

    Attributes:
        source: The checkpoint to go on from; None to begin.
        target: The checkpoint to write; None for none.
        every: Updates between two of them.
    """

    source: Path | None = None
    target: Path | None = None
    every: int = 100

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint | Location | None,
        checkpoint_every: int | None,
        resume: Location | bool | None,  # noqa: FBT001 - an argument of ``solve``
    ) -> Files:
        """Read the arguments of ``solve``; the last two are deprecated.

        Raises:
            CheckpointError: There is nothing to resume from, or the file would be
                overwritten, or no file can have that name.

        Example:
            >>> Files.of(Checkpoint("run.pt", every=5), None, None).every
            5
        """
        old = checkpoint_every is not None or resume is not None
        new = "checkpoint=oneproj.Checkpoint(path, every=..., resume=...)"
        if old and isinstance(checkpoint, Checkpoint):
            message = (
                "checkpoint_every= and resume= cannot be given beside a "
                f"oneproj.Checkpoint, which has both: {new}."
            )
            raise InvalidProblemError(message)
        if checkpoint is None and checkpoint_every is not None:
            message = (
                f"checkpoint_every={checkpoint_every} has no effect without a file to "
                f"save to: pass {new}."
            )
            raise InvalidProblemError(message)
        every = 100 if checkpoint_every is None else checkpoint_every
        every = check_count("checkpoint_every", every, INTERVAL)
        if isinstance(checkpoint, Checkpoint):
            every, resume = checkpoint.every, checkpoint.resume
            checkpoint = checkpoint.path
        target = None if checkpoint is None else _target(checkpoint)
        if resume is True:
            if target is None:
                message = (
                    "resume=True goes on from the checkpoint of the same call, but "
                    "none is given. Pass checkpoint=oneproj.Checkpoint(path)."
                )
                raise CheckpointError(message)
            resume = target if target.exists() else None
        source = None
        if resume is not None and resume is not False:
            source = as_path("resume", resume, also=", True or None")
        if target is not None and target.exists() and target != source:
            message = (
                f"There is a checkpoint at {str(target)!r} already, and this run would "
                "overwrite it. Pass oneproj.Checkpoint(path, resume=True) to go on "
                "from it, or delete it, or choose another path."
            )
            raise CheckpointError(message)
        if old:
            deprecate("solve(checkpoint_every=, resume=)", new)
        return cls(source, target, every)


def write_checkpoint(path: Path, state: State) -> None:
    """Write a checkpoint, in one step.

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
        check_plain(state, "the run")
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
        stream.write(first + b" " * 64 + b"\n")
        start = stream.tell()
        try:
            torch.save(state, stream)
        except RuntimeError as error:  # torch's own words hide what the disk said
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
        stream.seek(start)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(len(first))
        stream.write(digest.encode())


def read_checkpoint(path: Path) -> State:
    """Read a checkpoint; only a complete one, of this format.

    Raises:
        CheckpointError: There is none, or it is truncated, damaged or something else.
    """
    if not path.is_file():
        message = (
            f"There is no checkpoint at {str(path)!r} to resume from. Check the path, "
            "or start a run with checkpoint=oneproj.Checkpoint(path), which begins "
            "where there is no checkpoint yet."
        )
        raise CheckpointError(message)
    name = f"The checkpoint {str(path)!r}"
    try:
        with path.open("rb") as stream:
            _check_version(name, stream.readline(len(MAGIC) + 20))
            noted = stream.read(65).rstrip(b"\n").decode(errors="replace")
            start = stream.tell()
            complete = hashlib.file_digest(stream, "sha256").hexdigest() == noted
            stream.seek(start)
            if complete:
                return _load(name, stream)
    except OSError as error:
        message = f"{name} cannot be read: {in_words(error)}. Nothing was loaded."
        raise CheckpointError(message) from error
    message = (
        f"{name} is truncated or damaged: its contents do not have the checksum that "
        "was noted when it was written. Nothing was loaded. Checkpoints are replaced "
        "in one step, so this happened afterwards, in a copy for example: take another "
        "copy, or delete it and start anew."
    )
    raise CheckpointError(message)


def _load(name: str, stream: BinaryIO) -> State:
    try:
        state = torch.load(stream, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of any kind
        message = (
            f"{name} is complete, but torch {torch.__version__} cannot read it "
            f"({type(error).__name__}). Use the version that wrote it, or delete it "
            "and start anew."
        )
        raise CheckpointError(message) from error
    return state if isinstance(state, dict) else {}


def cannot_write(path: Path, error: OSError | ValueError) -> CheckpointError:
    """The error for a run that cannot be saved from the beginning."""
    message = (
        f"The checkpoint {str(path)!r} cannot be written: {in_words(error)}. No update "
        "was made, since a stop would lose it. Choose a file in a folder that you can "
        "write to, on a disk with room, or leave out checkpoint=."
    )
    return CheckpointError(message)


def _target(location: Location) -> Path:
    """The file to write: not a folder."""
    path = as_path("checkpoint", location, also=", a oneproj.Checkpoint or None")
    try:
        folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    if folder:
        message = (
            f"The checkpoint {str(path)!r} is a folder, but one run is one file, "
            "replaced as it goes. Name a file in it: "
            f"{str(path / 'run.pt')!r}."
        )
        raise CheckpointError(message)
    return path


def _check_version(name: str, line: bytes) -> None:
    if not (line.startswith(MAGIC) and line.endswith(b"\n")):
        message = (
            f"{name} is not a checkpoint of this library, or its first bytes are lost. "
            "Pass the path that was given to solve(checkpoint=...)."
        )
        raise CheckpointError(message)
    found = line.removeprefix(MAGIC).removesuffix(b"\n").decode(errors="replace")
    if found != str(VERSION):
        message = (
            f"{name} has format {found}, this version of the library reads format "
            f"{VERSION}. Finish the run with the version that began it, or delete the "
            "file and start anew."
        )
        raise CheckpointError(message)
