"""What a record owes its readers, beyond the types of its fields.

Somebody may have changed a file by hand. What tables and figures take for granted is
looked for where a record is read, so that none of them fails, or shows a claim that the
numbers beside it contradict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from oneproj_paper.experiments.facts import Values
from oneproj_paper.experiments.plain_json import from_plain

if TYPE_CHECKING:
    from oneproj_paper.experiments.records import Record

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
class _InForce:
    """The settings that are shown; there are others."""

    caps: Values
    thresholds: tuple[float, float] | None
    slack: tuple[float, float] | None
    target_error: float | None
    hidden: tuple[int, ...]


def flaw(record: Record) -> str | None:
    """What a record lacks, or where it contradicts itself; None if it is sound."""
    shown = {field.name for field in fields(_InForce)}
    given = {name: value for name, value in record.settings.items() if name in shown}
    try:
        settings: _InForce = from_plain(_InForce, given, "settings")
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
