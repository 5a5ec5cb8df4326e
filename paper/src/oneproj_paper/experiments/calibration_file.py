"""Calibrations on disk: one JSON file, whole or not at all, read with every field.

A file holds one calibration for each experiment, preset and method. Writing another
replaces the one of the same three and leaves the rest, also where several processes
write into one file: they take turns, by a lock in an empty file beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from oneproj import files
from oneproj.arguments import as_number
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments.calibration_search import Pair, Trial
from oneproj_paper.experiments.plain_json import from_plain, to_plain

SHIPPED = Path(__file__).with_name("calibrated.json")
"""What this library's own preset uses."""
OWN_PLACE = ("steps", "projector", "radius")
"""Settings that a spec has a place of its own for."""
OPTIONS = ("batch_size", "strength")
"""The other settings that are chosen along with the thresholds: options of a spec."""


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
    """What ``oneproj.solve`` was given, and the radius where it was chosen as well."""
    trials: tuple[Trial, ...]
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str]:
        """Experiment, preset and method: a file holds one calibration for each."""
        return self.experiment, self.preset, self.method

    @property
    def updates(self) -> int:
        """How many updates a training makes; the thresholds are for no other number.

        Raises:
            CalibrationError: It is not there, or not a number of updates.
        """
        found = self.settings.get("steps")
        if isinstance(found, int) and found > 0:
            return found
        message = (
            f"The calibration of {', '.join(self.key)} should say for how many updates "
            f"it is: a whole number from 1 on under settings, steps; got {found!r}. "
            "Make it again with `oneproj-paper calibrate`."
        )
        raise CalibrationError(message)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a spec that ``oneproj.solve`` gets unchanged.

        Raises:
            CalibrationError: There is a setting that no calibration chooses.

        Example:
            >>> shipped = {each.key: each for each in read_calibrations(SHIPPED)}
            >>> shipped["abstention-nasa", "oneproj", "projected-sgd"].options
            {'batch_size': 64}
        """
        for name in self.settings:
            if name not in (*OWN_PLACE, *OPTIONS):
                message = (
                    f"The calibration of {', '.join(self.key)} has a setting {name!r}, "
                    f"but {name!r} is none of those that are chosen along with the "
                    f"thresholds: {', '.join((*OWN_PLACE, *OPTIONS))}. Take it out, or "
                    "make the calibration again with `oneproj-paper calibrate`."
                )
                raise CalibrationError(message)
        return {name: self.settings[name] for name in OPTIONS if name in self.settings}

    @property
    def radius(self) -> float | None:
        """The radius of the safeguard ball; None for the experiment's own.

        Raises:
            CalibrationError: It is there, and cannot be one.
        """
        if "radius" not in self.settings:
            return None
        found = self.settings["radius"]
        if (number := as_number(found)) is not None and number > 0:
            return number
        message = (
            f"The calibration of {', '.join(self.key)} should have a number > 0 for a "
            f"radius, or none, under settings, radius; got {found!r}. Make it again "
            "with `oneproj-paper calibrate`."
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
        oneproj_paper.errors.CalibrationError: nowhere.json cannot be read as...
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        found: _File = from_plain(_File, plain, "it")
    except (OSError, ValueError, RecursionError) as error:
        message = (
            f"{path} cannot be read as calibrations: {error}. Name a file that "
            "`oneproj-paper calibrate --out` wrote, or make it again."
        )
        raise CalibrationError(message) from error
    return sorted(found.all, key=lambda calibration: calibration.key)


def check_place(path: Path) -> None:
    """Refuse a place where ``write_calibration`` would fail, before there is anything.

    Raises:
        CalibrationError: The file is there and is not one of calibrations, or it
            cannot be written.

    Example:
        >>> check_place(SHIPPED)
        >>> check_place(Path(__file__))
        Traceback (most recent call last):
        oneproj_paper.errors.CalibrationError: ...calibration_file.py cannot be ...
    """
    try:
        if path.exists():
            read_calibrations(path)
        files.check_place(path)
    except OSError as error:
        raise CalibrationError(_refused(path, error)) from error


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Put a calibration into a file, which may hold others.

    Raises:
        CalibrationError: The file is there and is not one of calibrations, or it
            cannot be written; the message then ends with what it would have held.
        OneprojError: A package is missing; the message says which.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What is read must be what is replaced: no process may write in between.
        with lock:
            before = read_calibrations(path) if path.exists() else []
            others = [other for other in before if other.key != calibration.key]
            files.write_text(path, _text([*others, calibration]))
    except OSError as error:  # hours of trials must not be lost to it
        message = (
            f"{_refused(path, error)} The calibration follows; as a file it is what "
            f"`oneproj-paper reproduce --thresholds` reads:\n{_text([calibration])}"
        )
        raise CalibrationError(message) from error


def _text(calibrations: list[Calibration]) -> str:
    ordered = sorted(calibrations, key=lambda each: each.key)
    content = _File("oneproj calibrations 1", tuple(ordered))
    return json.dumps(to_plain(content), indent=1) + "\n"


def _refused(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be written: {files.in_words(error)}. Choose another place, in "
        "a folder that you can write to, on a disk with room."
    )
