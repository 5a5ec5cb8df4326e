"""One run of an experiment as data, in a file of its own.

A run is known by experiment, preset, method, projector and seed, and these are the path
of its file: ``runs/abstention-nasa/paper/one-projection/cuts/seed-0000.json``. A file
is replaced in one step: whoever looks, and whenever the machine stops, finds a whole
record or none. A record carries a checksum of its contents: what happens to it
afterwards, by hand or in a copy, is noticed by whoever reads it, and costs that record
alone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from oneproj.files import write_text
from oneproj_paper.errors import DamagedRecordError, RecordError
from oneproj_paper.experiments.plain_json import from_plain, to_plain
from oneproj_paper.experiments.record_schema import (
    Key,
    Record,
    inconsistency,
)

FORMAT = 2
"""Of the files. A record that is read otherwise than before needs another number.
Records of format 1 have no checksum, and are refused."""
ASIDE = ".damaged"
"""Added to the name of a file that is no record: readers then pass over it."""
AGAIN = "`oneproj-paper reproduce` keeps it under another name and makes the run again."


def to_json(record: Record) -> str:
    """The text of a record's file.

    ``from_json`` undoes it, to the last bit.
    """
    plain = to_plain(record)
    signed = {"format": FORMAT, "checksum": checksum(plain)} | plain
    return json.dumps(signed, indent=1, allow_nan=False) + "\n"


def checksum(plain: Mapping[str, Any]) -> str:
    """The SHA-256 of a record's contents, whatever the layout of its file.

    It notices what was changed by hand or lost in a copy. Who changes a record and its
    checksum is not noticed.

    Example:
        >>> checksum({"a": 1, "b": 2.5}) == checksum({"b": 2.5, "a": 1})
        True
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(text: str, name: str = "the text") -> Record:
    """The record of such a text.

    Raises:
        DamagedRecordError: It is truncated, changed, or something else.
        RecordError: It is of another format.

    Example:
        >>> from_json("{}", "runs/x.json")
        Traceback (most recent call last):
        oneproj_paper.errors.DamagedRecordError: runs/x.json is not a record of...
    """
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = (
            f"{name} is truncated or damaged: it is no JSON ({error}). Records are "
            "written in one step, so this happened afterwards, in a copy for example. "
            f"{AGAIN}"
        )
        raise DamagedRecordError(message) from error
    found = plain.pop("format", None) if isinstance(plain, dict) else None
    if found is None:
        message = (
            f"{name} is not a record of this library: it names no format. Keep other "
            f"JSON files out of a folder of records. {AGAIN}"
        )
        raise DamagedRecordError(message)
    if found != FORMAT:
        message = (
            f"{name} has format {found!r}, this version of the library reads format "
            f"{FORMAT}. Use the version that wrote it, or delete the folder and run "
            "`oneproj-paper reproduce` again."
        )
        raise RecordError(message)
    noted = plain.pop("checksum", None)
    try:
        record: Record = from_plain(Record, plain, "it")
    except ValueError as error:
        message = f"{name} is damaged: {error}. Nothing of it was used. {AGAIN}"
        raise DamagedRecordError(message) from error
    if checksum(plain) != noted:
        message = (
            f"{name} was changed: its contents do not have the checksum that was noted "
            f"when it was written. Nothing of it was used. {AGAIN}"
        )
        raise DamagedRecordError(message)
    return record


class Damaged(NamedTuple):
    """A file in the place of a record that does not hold it."""

    place: Path
    """From the folder of all records."""
    reason: str
    """A sentence that begins with the file, and says what to do."""


class Found(NamedTuple):
    """What is under a folder, in the order of experiment, preset, ..., seed."""

    records: list[Record]
    damaged: list[Damaged]


def read_folder(folder: Path) -> Found:
    """Every record under a folder, and every file there that should be one.

    Raises:
        RecordError: A record has a format that another version of the library wrote.

    Example:
        >>> read_folder(Path("no such folder"))
        Found(records=[], damaged=[])
    """
    found = Found([], [])
    for path in sorted(folder.glob("*/*/*/*/seed-*.json")):
        try:
            found.records.append(_read(path, folder))
        except DamagedRecordError as error:
            found.damaged.append(Damaged(path.relative_to(folder), str(error)))
    found.records.sort(key=lambda record: record.key)
    return found


def read_record(folder: Path, key: Key) -> Record | None:
    """The record of one run; None if it is not there, or damaged.

    Example:
        >>> key = Key("abstention-nasa", "paper", "one-projection", "cuts", 3)
        >>> read_record(Path("no such folder"), key) is None
        True
    """
    try:
        return _read(folder / key.path, folder)
    except DamagedRecordError:
        return None


def set_aside(path: Path) -> Path:
    """Give a damaged file a name that readers pass over; returns the new place.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     path = Path(name, "seed-0003.json")
        ...     for _ in range(2):
        ...         path.touch()
        ...         set_aside(path).name
        'seed-0003.json.damaged'
        'seed-0003.json.damaged-2'
    """
    endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    places = (path.with_name(f"{path.name}{ASIDE}{ending}") for ending in endings)
    return path.rename(next(place for place in places if not place.exists()))


def write_record(record: Record, folder: Path) -> Path:
    """Write a record to its place under a folder, in one step; returns the place."""
    path = folder / record.key.path
    write_text(path, to_json(record))
    return path


def _read(path: Path, folder: Path) -> Record:
    """The record of a file, which is in its place."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}. {AGAIN}"
        raise DamagedRecordError(message) from error
    record = from_json(text, str(path))
    if record.key.path != path.relative_to(folder):
        message = (
            f"{path} holds the record of another run, whose place is "
            f"{folder / record.key.path}. Move it there, if it is not there already. "
            f"Otherwise {AGAIN}"
        )
        raise DamagedRecordError(message)
    if (wrong := inconsistency(record)) is not None:
        message = f"{path} was changed: {wrong}. Nothing of it was used. {AGAIN}"
        raise DamagedRecordError(message)
    return record
