"""Runs of the battery, and the file that keeps them: one line per run, saved each time.

A run is known by its ablation (empty for none), its problem and its seed. The file is
replaced as a whole after every run, so Ctrl-C loses at most the run that it stops, and
the same command goes on where it ended.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.measure import surroundings
from benchmarks.train_battery.ablations import ABLATIONS, NOTHING, switched_off
from benchmarks.train_battery.problems import CASES
from oneproj import solve
from oneproj.errors import InvalidProblemError, OneprojError, OneprojWarning
from oneproj.files import write_text
from oneproj.progress import progress_bar

BENCHMARK = "train battery"
WORDS = 8
"""Of a warning that are kept: they tell which one it is."""


class Key(NamedTuple):
    """What tells two runs apart."""

    ablation: str
    problem: str
    seed: int


@dataclass(frozen=True)
class Run:
    """What one run reached, and what it used."""

    ablation: str
    problem: str
    seed: int
    objective: float | None
    """On all data, at the answer; None if it is not finite, or after an error."""
    feasible: bool
    worst: float | None
    """The largest residual."""
    status: str
    """Of the solution, or the first words of an error."""
    gradients: int
    """Of each constraint, in the projection."""
    passes: int
    """Over the data of one constraint, in all of the run."""
    active: int
    """Constraints with a multiplier."""
    lr: float | None
    seconds: float
    warned: tuple[str, ...]
    """The first words of each warning."""

    @property
    def key(self) -> Key:
        """By which the record knows it."""
        return Key(self.ablation, self.problem, self.seed)


def run(key: Key) -> Run:
    """Build the problem, switch the mechanism off, and solve with the defaults.

    Example:
        >>> run(Key("", "polygon", 0)).feasible
        True
    """
    case, ablation = CASES[key.problem], ABLATIONS.get(key.ablation, NOTHING)
    problem = case.build(key.seed)
    begun = time.process_time()
    with (
        warnings.catch_warnings(record=True) as caught,
        torch.random.fork_rng(devices=[]),  # dropout draws from the global state
        switched_off(ablation) as arguments,
    ):
        torch.manual_seed(key.seed)
        warnings.simplefilter("always", OneprojWarning)
        seed = key.seed + ablation.seed_offset
        own: dict[str, Any] = {"steps": case.steps, "seed": seed, "progress": False}
        try:
            solution = solve(problem, on_failure="return", **own, **arguments)
        except OneprojError as error:
            seconds = time.process_time() - begun
            return _failed(key, str(error), seconds)
    worst = max(solution.residuals.values(), default=0.0)
    lr = solution.settings.get("lr")
    told = [" ".join(str(w.message).split()[:WORDS]) for w in caught]
    return Run(
        *key,
        objective=_finite(solution.objective),
        feasible=solution.feasible,
        worst=_finite(worst),
        status=solution.status.name,
        gradients=solution.projection.gradients,
        passes=solution.counts.constraint_passes,
        active=sum(mu > 0 for mu in solution.certificate.multipliers.values()),
        lr=None if lr is None else float(lr),
        seconds=round(time.process_time() - begun, 2),
        warned=tuple(dict.fromkeys(told)),
    )


def _failed(key: Key, error: str, seconds: float) -> Run:
    return Run(
        *key,
        objective=None,
        feasible=False,
        worst=None,
        status=" ".join(error.split()[:WORDS]),
        gradients=0,
        passes=0,
        active=0,
        lr=None,
        seconds=round(seconds, 2),
        warned=(),
    )


def _finite(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None


class Record:
    """Runs so far, in a file or in memory.

    Args:
        file: Continued if it exists. None keeps the record in memory.

    Raises:
        InvalidProblemError: The file holds something else.

    Example:
        >>> record = Record(None)
        >>> record.add(run(Key("", "polygon", 0)))
        >>> list(record.runs)
        [Key(ablation='', problem='polygon', seed=0)]
    """

    def __init__(self, file: Path | None) -> None:
        """Read what is there."""
        self._file = file
        self.runs: dict[Key, Run] = {}
        if file is not None and file.exists():
            self.runs = {found.key: found for found in read_runs(file)}

    def add(self, made: Run) -> None:
        """Keep a run, and save."""
        self.runs[made.key] = made
        if self._file is not None:
            write_text(self._file, self._text())

    def _text(self) -> str:
        head = {
            "benchmark": BENCHMARK,
            "surroundings": surroundings(),
            "columns": [column.name for column in fields(Run)],
        }
        lines = [json.dumps(astuple(made)) for made in self.runs.values()]
        listed = ",\n".join(lines)
        return f'{json.dumps(head)[:-1]}, "runs": [\n{listed}\n]}}\n'


def read_runs(file: Path) -> list[Run]:
    """The runs of a record.

    Raises:
        InvalidProblemError: It is none.
    """
    try:
        found = json.loads(file.read_text())
        rows = {BENCHMARK: found["runs"]}[found["benchmark"]]
        named = [dict(zip(found["columns"], row, strict=True)) for row in rows]
        return [Run(**row | {"warned": tuple(row["warned"])}) for row in named]
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"{file} is no record of the training battery ({error}), so it can be "
            "neither continued nor compared. Choose another file."
        )
        raise InvalidProblemError(message) from error


def make_runs(
    keys: Iterable[Key], record: Record, *, jobs: int = 1, progress: bool | None = None
) -> None:
    """Make the runs that the record does not have yet.

    Args:
        keys: What to run, in this order where there is one job.
        record: Gets every run as it ends.
        jobs: Processes, of one thread each.
        progress: Show a bar; None shows it on a terminal.
    """
    missing = [key for key in keys if key not in record.runs]
    with progress_bar("train battery", len(missing), enabled=progress) as advance_to:
        for done, made in enumerate(_made(missing, jobs), start=1):
            record.add(made)
            advance_to(done)


def _made(keys: list[Key], jobs: int) -> Iterator[Run]:
    if jobs == 1:
        yield from map(run, keys)
        return
    with ProcessPoolExecutor(
        jobs, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        begun = [pool.submit(run, key) for key in keys]
        try:
            for future in as_completed(begun):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def of_ablation(runs: Iterable[Run], ablation: str) -> list[Run]:
    """The runs with one mechanism off; of none, for the empty name.

    Example:
        >>> of_ablation([], "")
        []
    """
    return [made for made in runs if made.ablation == ablation]
