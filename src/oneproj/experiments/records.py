"""One run of an experiment as data, in a file of its own.

A run is known by experiment, preset, method, projector and seed, and these are the path
of its file: ``runs/abstention-nasa/paper/one-projection/cuts/seed-0000.json``. A file
is written beside its place, forced to the disk and only then moved there in one step:
whoever looks, and whenever the machine stops, finds a whole record or none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from oneproj.errors import RecordError
from oneproj.experiments.facts import (
    CertificateFacts,
    CountFacts,
    DataFacts,
    ProjectionFacts,
    Values,
)
from oneproj.experiments.plain_json import from_plain, to_plain

FORMAT = 1
"""Of the files. A record that is read otherwise than before needs another number."""

Preset = Literal["paper", "oneproj"]
Method = Literal["one-projection", "projected-sgd"]
Projector = Literal["cuts", "augmented-lagrangian", "dual-bisection"]


class Key(NamedTuple):
    """What a run is known by; the order is that of the folders.

    Example:
        >>> Key("abstention-nasa", "paper", "one-projection", "cuts", 3).path.name
        'seed-0003.json'
    """

    experiment: str
    preset: str
    method: str
    projector: str
    seed: int

    @property
    def path(self) -> Path:
        """Where its record is, from the folder of all records."""
        return Path(*self[:4], f"seed-{self.seed:04d}.json")


@dataclass(frozen=True)
class Record:
    """One run: settings, answer, metrics, certificate, counts, seconds, history.

    Errors and ambiguity are shares between 0 and 1. The history is evaluated on all
    training data at the start, after every outer iteration, and after the terminal
    projection.
    """

    experiment: str
    preset: Preset
    method: Method
    projector: Projector
    seed: int
    task: Literal["transfer", "abstention"]
    settings: Mapping[str, Any]
    """Everything in force, in plain JSON types."""
    data: DataFacts
    status: str
    """The name of a ``oneproj.Status``, in lower case."""
    feasible: bool
    """Whether every residual is <= 0, exactly."""
    objective: float
    residuals: Values
    residuals_before: Values
    """Before the terminal projection."""
    risks: Values
    """The value of each constrained risk: residual + cap."""
    metrics: Mapping[str, Values]
    """Of the task, on train, validation and test."""
    certificate: CertificateFacts
    projection: ProjectionFacts
    counts: CountFacts
    updates: int
    planned_updates: int
    complete: bool
    """Whether all planned updates were made."""
    seconds: Values
    """source_fit, train, project, certify; evaluating the history is in none of them.
    """
    runtime: float
    """As the paper counts: updates, projections and, for transfer, the source fit."""
    extrapolated_from: int | None
    """Updates that were made, where the runtime is extrapolated to the planned ones."""
    history: Mapping[str, tuple[float, ...]]
    """update, seconds, objective, each constrained risk, and "validation risk"."""
    command: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """What the library warned about during the run."""

    @property
    def key(self) -> Key:
        """What this run is known by."""
        return Key(self.experiment, self.preset, self.method, self.projector, self.seed)


def to_json(record: Record) -> str:
    """The text of a record's file.

    ``from_json`` undoes it, to the last bit.
    """
    plain = {"format": FORMAT} | to_plain(record)
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def from_json(text: str, name: str = "the text") -> Record:
    """The record of such a text.

    Raises:
        RecordError: It is damaged, of another format, or something else.

    Example:
        >>> from_json("{}", "runs/x.json")
        Traceback (most recent call last):
        oneproj.errors.RecordError: runs/x.json is not a record of this library...
    """
    try:
        plain = json.loads(text)
    except ValueError as error:
        message = (
            f"{name} is truncated or damaged: it is no JSON ({error}). Records are "
            "written in one step, so this happened afterwards, in a copy for example. "
            "Delete it: the same `oneproj reproduce` makes it again."
        )
        raise RecordError(message) from error
    found = plain.pop("format", None) if isinstance(plain, dict) else None
    if found is None:
        message = (
            f"{name} is not a record of this library: it names no format. Keep records "
            "in a folder of their own, and other JSON files out of it."
        )
        raise RecordError(message)
    if found != FORMAT:
        message = (
            f"{name} has format {found!r}, this version of the library reads format "
            f"{FORMAT}. Use the version that wrote it, or delete the folder and run "
            "`oneproj reproduce` again."
        )
        raise RecordError(message)
    try:
        record: Record = from_plain(Record, plain, "it")
    except ValueError as error:
        message = (
            f"{name} is damaged: {error}. Nothing of it was used. Delete it: the same "
            "`oneproj reproduce` makes it again."
        )
        raise RecordError(message) from error
    return record


def read_record(path: Path) -> Record:
    """The record of a file.

    Raises:
        RecordError: As ``from_json``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""  # as damaged as no JSON
    return from_json(text, str(path))


def read_records(folder: Path) -> list[Record]:
    """Every record under a folder, in the order of experiment, preset, ..., seed.

    Raises:
        RecordError: A record is damaged, of another format, or not in its place.

    Example:
        >>> read_records(Path("no such folder"))
        []
    """
    records = []
    for path in folder.glob("*/*/*/*/seed-*.json"):
        record = read_record(path)
        if record.key.path != path.relative_to(folder):
            message = (
                f"{path} holds the record of another run, whose place is "
                f"{folder / record.key.path}. Move it there, or delete it."
            )
            raise RecordError(message)
        records.append(record)
    return sorted(records, key=lambda record: record.key)


def write_record(record: Record, folder: Path) -> Path:
    """Write a record to its place under a folder, in one step; returns the place.

    One writer per place: a second one would write into the same draft.
    """
    path = folder / record.key.path
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    try:
        with draft.open("w", encoding="utf-8") as stream:
            stream.write(to_json(record))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:  # Ctrl-C or a full disk: what is there is a whole record or none
        draft.unlink(missing_ok=True)
    return path
