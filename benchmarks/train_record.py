"""The record of ``bench train`` on disk: whole or not at all, one run richer each time.

A run is known by problem, contestant and seed. A record that was begun under other
conditions is not continued: times and objectives would not compare.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import surroundings
from oneproj.errors import InvalidProblemError
from oneproj.files import write_text

NEEDED = (
    *("problem", "contestant", "seed", "reason", "note", "objective", "feasible"),
    *("complete", "seconds", "overhead", "trace", "surroundings"),
)
"""What tables and figures take for granted of a run."""


class TrainRecord:
    """Runs so far, saved after every one of them.

    Args:
        file: Where it lives; continued if it exists. None keeps it in memory.
        conditions: What all its runs share.

    Raises:
        InvalidProblemError: The file holds another record.

    Example:
        >>> record = TrainRecord(None, {"steps": 10})
        >>> record.add({"problem": "p", "contestant": "c", "seed": 0, "seconds": 1.0})
        >>> record.has("p", "c", 0), record.has("p", "c", 1)
        (True, False)
    """

    def __init__(self, file: Path | None, conditions: dict[str, Any]) -> None:
        """Read what is there."""
        self._file = file
        conditions = conditions | {"threads": torch.get_num_threads()}
        self.content: dict[str, Any] = {
            "benchmark": "train",
            "conditions": conditions,
            "skipped": {},
            "runs": [],
        }
        if file is not None and file.exists():
            found = _read(file)
            _check(found, conditions, file)
            self.content["runs"] = found["runs"]

    def has(self, problem: str, contestant: str, seed: int) -> bool:
        """Whether that run was made."""
        wanted = (problem, contestant, seed)
        return any(_key(run) == wanted for run in self.content["runs"])

    def add(self, run: dict[str, Any]) -> None:
        """Keep a run, with what its time depends on, and save."""
        self.content["runs"].append(run | {"surroundings": surroundings()})
        self.save()

    def skip(self, problem: str, reason: str) -> None:
        """Say why a problem has no runs."""
        self.content["skipped"][problem] = reason
        self.save()

    def save(self) -> None:
        """Write the file in place of the old one, in one step."""
        if self._file is not None:
            text = json.dumps(self.content, indent=1, allow_nan=False)
            write_text(self._file, text + "\n")


def _key(run: dict[str, Any]) -> tuple[str, str, int]:
    return run["problem"], run["contestant"], run["seed"]


def _is_run(found: object) -> bool:
    return isinstance(found, dict) and found.keys() >= set(NEEDED)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        message = f"{file} is no JSON, so no record to continue. Choose another --out."
        raise InvalidProblemError(message) from error
    if isinstance(found, dict) and found.get("benchmark") == "train":
        runs = found.get("runs")
        if isinstance(runs, list) and all(map(_is_run, runs)):
            return found
        message = (
            f"{file} was changed: not all of its runs have {', '.join(NEEDED)}. Choose "
            "another --out."
        )
        raise InvalidProblemError(message)
    message = f"{file} is not a record of bench train. Choose another --out."
    raise InvalidProblemError(message)


def _check(found: dict[str, Any], conditions: dict[str, Any], file: Path) -> None:
    before = found.get("conditions")
    if before == conditions:
        return
    message = (
        f"{file} was recorded with {before}, this run has {conditions}: "
        "side by side they would mislead. Use the same settings, or another --out."
    )
    raise InvalidProblemError(message)
