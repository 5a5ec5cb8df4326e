"""What a record of a run holds, and what it must satisfy to be used. Pure data.

A file may have been changed by hand. Whoever reads a record asks ``inconsistency``, so
that no table or figure fails, or shows a claim that the numbers beside it contradict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from oneproj_paper.experiments.plain_json import from_plain

Values = Mapping[str, float]
Preset = Literal["paper", "oneproj"]
Method = Literal["one-projection", "projected-sgd"]
Projector = Literal["cuts", "augmented-lagrangian", "dual-bisection"]
METRICS = {
    "abstention": {"class_0_error", "class_1_error", "ambiguity", "decided_accuracy"},
    "transfer": {"error", "risk"},
}
"""What each task measures."""
PARTS = {
    "abstention": {"train", "validation", "test"},
    "transfer": {"train", "validation", "test", "source"},
}
"""Of the data of each task."""


@dataclass(frozen=True)
class DataRecord:
    """What a run was trained and judged on."""

    stand_in: bool
    """Whether another sample takes the place of the paper's."""
    note: str
    variables: int
    """Raw ones, before features are made of them."""
    inputs: int
    """Of the model."""
    parameters: int
    counts: Mapping[str, tuple[int, int]]
    """Examples of class 0 and of class 1 in train, validation, test and source."""


@dataclass(frozen=True)
class MeasureRecord:
    """A measure of a certificate; see ``oneproj.Measure``."""

    name: str
    value: float
    bound: float | None
    holds: bool | None
    source: str
    error: float


@dataclass(frozen=True)
class CertificateRecord:
    """A certificate; see ``oneproj.Certificate``."""

    measures: tuple[MeasureRecord, ...]
    multipliers: Values
    holds: bool


@dataclass(frozen=True)
class ProjectionRecord:
    """The last projection of a run; see ``oneproj.Projection``."""

    distance: float
    evaluations: int
    kkt_residual: float


@dataclass(frozen=True)
class CountsRecord:
    """What a run used; see ``oneproj.Counts``."""

    objective_gradients: int
    constraint_gradients: int
    constraint_passes: int
    projections: int


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
    data: DataRecord
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
    certificate: CertificateRecord
    projection: ProjectionRecord
    counts: CountsRecord
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


@dataclass(frozen=True)
class _ShownSettings:
    """The settings that are shown; there are others."""

    caps: Values
    thresholds: tuple[float, float] | None
    slack: tuple[float, float] | None
    target_error: float | None
    hidden: tuple[int, ...]


def inconsistency(record: Record) -> str | None:
    """What a record lacks, or where it contradicts itself; None if it is valid."""
    shown = {field.name for field in fields(_ShownSettings)}
    given = {name: value for name, value in record.settings.items() if name in shown}
    try:
        settings: _ShownSettings = from_plain(_ShownSettings, given, "settings")
    except ValueError as error:
        return str(error)
    task, residuals = record.task, record.residuals
    abstains = task == "abstention"
    feasible = all(residual <= 0 for residual in residuals.values())
    checks = {
        "its task is not that of its name": record.experiment.startswith(f"{task}-"),
        "a part of the data has no counts": record.data.counts.keys() >= PARTS[task],
        "metrics on test data are missing": record.metrics.get("test", {}).keys()
        >= METRICS[task],
        "residuals, risks and settings.caps are of different constraints": (
            settings.caps.keys() == residuals.keys() == record.risks.keys()
        ),
        "settings.target_error is of another task": abstains
        == (settings.target_error is not None),
        f"feasible is {record.feasible}, its residuals say {feasible}": feasible
        is record.feasible,
        "complete is not what its updates say": record.complete
        == (record.updates == record.planned_updates),
        f"a runtime of {record.runtime} cannot be": 0 <= record.runtime < math.inf,
        "the columns of its history are of different lengths": _is_table(
            record.history
        ),
    }
    return next((words for words, holds in checks.items() if not holds), None)


def _is_table(history: Mapping[str, tuple[float, ...]]) -> bool:
    lengths = {len(column) for column in history.values()}
    return "update" in history and len(lengths) == 1 and 0 not in lengths
