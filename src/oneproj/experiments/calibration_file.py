"""Calibrations on disk: one JSON file, whole or not at all, read with every field.

A file holds one calibration for each experiment, preset and method. Writing another
replaces the one of the same three and leaves the rest, also where several processes
write into one file: they take turns, by a lock in an empty file beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oneproj.errors import CalibrationError
from oneproj.experiments.calibration_search import Pair, Trial
from oneproj.experiments.plain_json import from_plain, to_plain
from oneproj.experiments.surroundings import require
from oneproj.files import write_text

SHIPPED = Path(__file__).with_name("calibrated.json")
"""What this library's own preset uses."""


@dataclass(frozen=True)
class Calibration:
    """Thresholds, and where they come from.

    Example:
        >>> calibrations = read_calibrations(SHIPPED)
        >>> sorted({calibration.preset for calibration in calibrations})
        ['oneproj']
    """

    experiment: str
    preset: str
    method: str
    thresholds: Pair
    """On the surrogate errors of class 0 and class 1, without the slack."""
    targets: Pair
    """What the class errors should come up to, and not over."""
    aim: str
    """Where the targets come from, in words."""
    errors: Pair
    """Of each class on validation data, the mean over the seeds."""
    ambiguity: float
    """On validation data, the mean over the seeds."""
    note: str
    """What the reader should know; empty where there is nothing."""
    seeds: tuple[int, ...]
    """Of splits, starts and sampling."""
    settings: Mapping[str, Any]
    """What ``oneproj.solve`` was given."""
    trials: tuple[Trial, ...]
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by."""
        return self.experiment, self.preset, self.method

    @property
    def updates(self) -> int:
        """How many a training makes: the thresholds are for no other number.

        Raises:
            CalibrationError: It is not there, or not a number of updates.
        """
        found = self.settings.get("steps")
        if isinstance(found, int) and found > 0:
            return found
        message = (
            f"The calibration of {', '.join(self.key)} should say for how many updates "
            f"it is: a whole number from 1 on under settings, steps; got {found!r}. "
            "Make it again with `oneproj calibrate`."
        )
        raise CalibrationError(message)


@dataclass(frozen=True)
class _File:
    """What a file holds."""

    format: Literal["oneproj calibrations 1"]
    all: tuple[Calibration, ...]


def read_calibrations(path: Path) -> list[Calibration]:
    """Every calibration of a file, in the order of their keys.

    Raises:
        CalibrationError: There is no such file, or it is damaged or something else.

    Example:
        >>> read_calibrations(Path("nowhere.json"))
        Traceback (most recent call last):
        oneproj.errors.CalibrationError: nowhere.json cannot be read as calibrations...
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        found: _File = from_plain(_File, plain, "it")
    except (OSError, ValueError, RecursionError) as error:
        message = (
            f"{path} cannot be read as calibrations: {error}. Name a file that "
            "`oneproj calibrate --out` wrote, or make it again."
        )
        raise CalibrationError(message) from error
    return sorted(found.all, key=lambda calibration: calibration.key)


def check_place(path: Path) -> None:
    """Refuse a place where ``write_calibration`` would fail, before there is anything.

    Raises:
        CalibrationError: The file is there and is not one of calibrations, or it
            cannot be made.

    Example:
        >>> check_place(SHIPPED)
        >>> check_place(Path(__file__))
        Traceback (most recent call last):
        oneproj.errors.CalibrationError: ...calibration_file.py cannot be read as ...
    """
    if path.exists():
        read_calibrations(path)
    folder = next(each for each in path.absolute().parents if each.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        message = f"{path} cannot be written: {folder} is no folder to write in."
        raise CalibrationError(message)


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Put a calibration into a file, which may hold others.

    Raises:
        CalibrationError: The file is there and is not one of calibrations.
        OneprojError: A package is missing; the message says which.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # What is read must be what is replaced: nobody may write in between.
    with require("filelock").FileLock(path.with_name(f".{path.name}.lock")):
        before = read_calibrations(path) if path.exists() else []
        others = [other for other in before if other.key != calibration.key]
        ordered = sorted([*others, calibration], key=lambda each: each.key)
        content = _File("oneproj calibrations 1", tuple(ordered))
        write_text(path, json.dumps(to_plain(content), indent=1) + "\n")
